/* kernels/cuda/step/persistent_e4m3.cu - the narrow persistent kernel for weights in FP8, see persistent_codes.cuh. */
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_e4m3 = {codes_open<FORM_E4M3, false>, set_patience, codes_run<FORM_E4M3, false>};
