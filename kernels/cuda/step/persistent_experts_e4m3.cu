/* kernels/cuda/step/persistent_experts_e4m3.cu - see persistent_experts_kernels.cuh: activations are bfloat16, experts
 * E4M3. */
#include "kernels/cuda/step/persistent_experts_kernels.cuh"

const struct expert_kernels expert_kernels_e4m3 = {open_expert_kernels<__nv_bfloat16, FORM_E4M3, SCOPE_PLAIN>,
                                                   set_patience,
                                                   run_expert_kernel<__nv_bfloat16, FORM_E4M3, SCOPE_PLAIN>};
