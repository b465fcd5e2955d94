/* kernels/cuda/step/persistent_codes_bf16.cu - see persistent_codes.cuh: activations are bfloat16. */
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_bf16 = {codes_open<__nv_bfloat16>, codes_patience, codes_run<__nv_bfloat16>};
