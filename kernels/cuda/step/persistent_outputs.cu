/* kernels/cuda/step/persistent_outputs.cu - the narrow persistent kernel for models that normalise outputs, too, of
 * 16-bit weights: see persistent_outputs.cuh. */
#define CHAIN_OUTPUTS 1
#include "kernels/cuda/step/persistent_codes.cuh"

const struct code_kernels code_kernels_outputs = {codes_open<FORM_NONE, false>, set_patience,
                                                  codes_run<FORM_NONE, false>};
