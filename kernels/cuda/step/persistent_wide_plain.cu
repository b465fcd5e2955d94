/* kernels/cuda/step/persistent_wide_plain.cu - the wide persistent kernel for 16-bit weights. */
#include "kernels/cuda/step/persistent_wide_any.cuh"

const struct wide_kernels wide_kernels_plain = {open_wide, set_patience, run_wide};
