/* kernels/cuda/step/persistent_codes_f16.cu - see persistent_codes.cuh: activations are 16-bit floats. */
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_f16 = {codes_open<__half>, codes_patience, codes_run<__half>};
