/* kernels/cuda/step/persistent_keys.cu - the narrow persistent kernel for 16-bit weights with keys and values in the
 * ring: see persistent_keys.cuh and persistent_codes.cuh. */
#define CHAIN_KEYS 1
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_keys = {codes_open<FORM_NONE, false>, set_patience, codes_run<FORM_NONE, false>};
