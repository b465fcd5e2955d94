/* kernels/cuda/step/persistent_wide_e4m3.cu - the wide persistent kernel for weights in FP8. */
#define CHAIN_WIDE_CODES 1
#include "kernels/cuda/step/persistent_wide_any.cuh"

const struct wide_kernels wide_kernels_e4m3 = {open_wide, set_patience, run_wide};
