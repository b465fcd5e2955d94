/* kernels/cuda/step/persistent_experts_f16.cu - see persistent_experts_kernels.cuh: activations and experts are
 * float16. One kernel for all such models, which are few. */
#include "kernels/cuda/step/persistent_experts_kernels.cuh"

const struct expert_kernels expert_kernels_f16 = {open_expert_kernels<__half, FORM_NONE, SCOPE_FULL>, set_patience,
                                                  run_expert_kernel<__half, FORM_NONE, SCOPE_FULL>};
