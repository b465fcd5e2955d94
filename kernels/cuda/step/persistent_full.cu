/* kernels/cuda/step/persistent_full.cu - the narrow persistent kernel for 16-bit weights with support for several
 * tokens per sequence, taps for a drafting head, and keys and values in FP8 for all heads: see persistent_codes.cuh. */
#include "kernels/cuda/step/persistent_attention_codes.cuh"
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_full = {codes_open<FORM_NONE, true>, set_patience, codes_run<FORM_NONE, true>};
