/* kernels/cuda/step/persistent_coded_keys.cu - the narrow persistent kernel for 16-bit weights beside keys and values
 * in FP8, which come through the ring: see persistent_keys.cuh and persistent_codes.cuh. */
#define CHAIN_KEYS 1
#include "kernels/cuda/step/persistent_attention_codes.cuh"
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_coded_keys = {codes_open<FORM_NONE, true>, set_patience,
                                                     codes_run<FORM_NONE, true>};
