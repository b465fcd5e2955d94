/* kernels/cuda/step/persistent_experts_bf16_latent.cu - see persistent_experts_kernels.cuh: activations and experts are
 * bfloat16. */
#include "kernels/cuda/step/persistent_experts_kernels.cuh"

const struct expert_kernels expert_kernels_bf16_latent = {open_expert_kernels<__nv_bfloat16, FORM_NONE, SCOPE_LATENT>,
                                                          set_patience,
                                                          run_expert_kernel<__nv_bfloat16, FORM_NONE, SCOPE_LATENT>};
