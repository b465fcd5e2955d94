/* kernels/cuda/step/persistent_experts_e2m1.cu - see persistent_experts_kernels.cuh: activations are bfloat16, experts
 * E2M1. */
#include "kernels/cuda/step/persistent_experts_kernels.cuh"

const struct expert_kernels expert_kernels_e2m1 = {open_expert_kernels<__nv_bfloat16, FORM_E2M1, SCOPE_PLAIN>,
                                                   set_patience,
                                                   run_expert_kernel<__nv_bfloat16, FORM_E2M1, SCOPE_PLAIN>};
