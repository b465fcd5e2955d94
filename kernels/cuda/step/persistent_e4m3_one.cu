/* kernels/cuda/step/persistent_e4m3_one.cu - the narrow persistent kernel for weights in FP8 and one token, see
 * persistent_codes.cuh. */
#define CHAIN_KEYS 1
#define CHAIN_ONE  1
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_e4m3_one = {codes_open<FORM_E4M3, false>, set_patience,
                                                   codes_run<FORM_E4M3, false>};
