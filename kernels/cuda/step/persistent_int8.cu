/* kernels/cuda/step/persistent_int8.cu - the narrow persistent kernel for weights in INT8, see persistent_codes.cuh. */
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_int8 = {codes_open<FORM_INT8, false>, set_patience, codes_run<FORM_INT8, false>};
