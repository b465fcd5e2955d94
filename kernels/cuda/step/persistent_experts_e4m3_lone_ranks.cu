/* kernels/cuda/step/persistent_experts_e4m3_lone_ranks.cu - see persistent_experts_kernels.cuh: activations are
 * bfloat16, experts FP8; for one token on several ranks. */
#define CHAIN_LONE 2

#include "kernels/cuda/step/persistent_experts_kernels.cuh"

const struct expert_kernels expert_kernels_e4m3_lone_ranks = {
    open_expert_kernels<__nv_bfloat16, FORM_E4M3, SCOPE_PLAIN, 128, NORM_RMS>, set_patience,
    run_expert_kernel<__nv_bfloat16, FORM_E4M3, SCOPE_PLAIN, 128, NORM_RMS>};
