/* kernels/cuda/step/persistent_one.cu - the narrow persistent kernel for 16-bit weights and one token, with keys and
 * values in the ring (persistent_keys.cuh). */
#define CHAIN_KEYS 1
#define CHAIN_ONE  1
#include "kernels/cuda/step/persistent_host.cuh"
#include "kernels/cuda/step/persistent_kernel.cuh"
#include "kernels/cuda/step/persistent_one.h"

/* Tiles of 16-bit weights are for all warps together. */
template <typename T, chain_form FORM, int SLOTS>
__device__ __forceinline__ static void code_team_tiles(weight_ring<SLOTS> &, const chain_args &, const chain_shared &,
                                                       const chain_product &, const chain_share &, chain_count &,
                                                       const float *, const float *, uint32_t)
{
    __builtin_unreachable();
}

template <typename T>
static chain_kernel find_kernel(int slots)
{
    return slots == 5   ? persistent_kernel<T, 5, FORM_NONE, false>
           : slots == 3 ? persistent_kernel<T, 3, FORM_NONE, false>
                        : persistent_kernel<T, 2, FORM_NONE, false>;
}

static chain_kernel find_kernel(const struct queue *q, int slots)
{
    return q->act == DTYPE_BF16 ? find_kernel<__nv_bfloat16>(slots) : find_kernel<__half>(slots);
}

static void one_open(struct queue *q, int max_shared)
{
    for (int slots : {5, 3, 2})
        CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_kernel(q, slots),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared));
}

static void one_run(struct queue *q, int slots, const struct chain_args *a)
{
    launch_chain(q, find_kernel(q, slots), *a);
}

const struct code_kernels code_kernels_one = {one_open, set_patience, one_run};
