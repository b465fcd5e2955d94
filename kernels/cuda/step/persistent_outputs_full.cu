/* kernels/cuda/step/persistent_outputs_full.cu - as persistent_outputs.cu, with support for several tokens per sequence
 * and keys and values in FP8. */
#define CHAIN_OUTPUTS 1
#include "kernels/cuda/step/persistent_attention_codes.cuh"
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_outputs_full = {codes_open<FORM_NONE, true>, set_patience,
                                                       codes_run<FORM_NONE, true>};
