/* kernels/cuda/step/persistent_int4.cu - the narrow persistent kernel for weights in INT4, see persistent_codes.cuh. */
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_int4 = {codes_open<FORM_INT4, false>, set_patience, codes_run<FORM_INT4, false>};
