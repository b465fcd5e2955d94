/* kernels/cuda/step/persistent_int8_full.cu - the narrow persistent kernel for weights in INT8 beside keys and values
 * in FP8, see persistent_codes.cuh. */
#define CHAIN_KEYS 1
#include "kernels/cuda/step/persistent_attention_codes.cuh"
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_int8_full = {codes_open<FORM_INT8, true>, set_patience,
                                                    codes_run<FORM_INT8, true>};
