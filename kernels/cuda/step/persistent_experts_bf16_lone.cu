/* kernels/cuda/step/persistent_experts_bf16_lone.cu - see persistent_experts_kernels.cuh: activations are bfloat16,
 * experts bfloat16; for one token on one rank. */
#define CHAIN_LONE 1

#include "kernels/cuda/step/persistent_experts_kernels.cuh"

const struct expert_kernels expert_kernels_bf16_lone = {
    open_expert_kernels<__nv_bfloat16, FORM_NONE, SCOPE_PLAIN, 128, NORM_RMS>, set_patience,
    run_expert_kernel<__nv_bfloat16, FORM_NONE, SCOPE_PLAIN, 128, NORM_RMS>};
const struct expert_kernels expert_kernels_bf16_lone_once = {
    open_expert_kernels<__nv_bfloat16, FORM_NONE, SCOPE_PLAIN, 64, NORM_RMS_ONCE>, set_patience,
    run_expert_kernel<__nv_bfloat16, FORM_NONE, SCOPE_PLAIN, 64, NORM_RMS_ONCE>};
