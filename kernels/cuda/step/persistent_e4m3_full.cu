/* kernels/cuda/step/persistent_e4m3_full.cu - the narrow persistent kernel for weights in FP8 beside keys and values in
 * FP8, see persistent_codes.cuh. */
#define CHAIN_KEYS 1
#include "kernels/cuda/step/persistent_attention_codes.cuh"
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_e4m3_full = {codes_open<FORM_E4M3, true>, set_patience,
                                                    codes_run<FORM_E4M3, true>};
