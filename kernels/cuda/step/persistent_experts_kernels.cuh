/* kernels/cuda/step/persistent_experts_kernels.cuh - kernels for mixtures of experts, of activations of type T and
 * experts' weights of FORM and of a SCOPE. Each kind has a file of its own, as persistent_experts_bf16.cu, since
 * they take long to compile. */
#ifndef STEP_PERSISTENT_EXPERTS_KERNELS_CUH
#define STEP_PERSISTENT_EXPERTS_KERNELS_CUH

#include "kernels/cuda/step/persistent_experts.cuh"
#include "kernels/cuda/step/persistent_experts_kernels.h"
#include "kernels/cuda/step/persistent_host.cuh"

typedef void (*expert_kernel)(struct expert_args);

/* slots: of the ring; 5, 3 or 2; of codes: any, since their ring is packed; with CHAIN_LONE: LONE_SLOTS */
template <typename T, chain_form FORM, expert_scope SCOPE, int HD, norm_kind NORM>
static expert_kernel find_expert_kernel(int slots)
{
    if constexpr (FORM != FORM_NONE)
        return persistent_experts_kernel<T, PACKED_SLOTS, FORM, SCOPE, HD, NORM, CHAIN_LONE>;
    else if constexpr (CHAIN_LONE)
        return persistent_experts_kernel<T, LONE_SLOTS, FORM, SCOPE, HD, NORM, CHAIN_LONE>;
    else
        return slots == 5   ? persistent_experts_kernel<T, 5, FORM, SCOPE, HD, NORM, CHAIN_LONE>
               : slots == 3 ? persistent_experts_kernel<T, 3, FORM, SCOPE, HD, NORM, CHAIN_LONE>
                            : persistent_experts_kernel<T, 2, FORM, SCOPE, HD, NORM, CHAIN_LONE>;
}

template <typename T, chain_form FORM, expert_scope SCOPE, int HD = 0, norm_kind NORM = NORM_RMS_ONCE>
static void open_expert_kernels(struct queue *q, int max_shared)
{
    for (int slots : {5, 3, 2})
        CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_expert_kernel<T, FORM, SCOPE, HD, NORM>(slots),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared));
}

template <typename T, chain_form FORM, expert_scope SCOPE, int HD = 0, norm_kind NORM = NORM_RMS_ONCE>
static void run_expert_kernel(struct queue *q, int slots, const struct expert_args *a)
{
    launch_chain(q, find_expert_kernel<T, FORM, SCOPE, HD, NORM>(slots), *a);
}

#endif
