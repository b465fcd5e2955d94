/* kernels/cuda/step/persistent_int4_one.cu - the narrow persistent kernel for weights in INT4 and one token, see
 * persistent_codes.cuh and, for what it multiplies, persistent_digits.cuh. */
#define CHAIN_KEYS 1
#define CHAIN_ONE  1
#include "kernels/cuda/step/persistent_codes.cuh"
#include "kernels/cuda/step/persistent_digit_tile.cuh"

const struct code_kernels code_kernels_int4_one = {codes_open<FORM_INT4, false>, set_patience,
                                                   codes_run<FORM_INT4, false>};
