/* kernels/cuda/step/persistent_codes.cuh - the narrow kernels for weights of one form, FULL ones or not: common to
 * persistent_full.cu, persistent_e4m3.cu and others, which are separate files because they take long to compile. */
#ifndef STEP_PERSISTENT_CODES_CUH
#define STEP_PERSISTENT_CODES_CUH

#include "kernels/cuda/step/persistent_code_tile.cuh"
#include "kernels/cuda/step/persistent_host.cuh"

/* slots: of the ring; 5, 3 or 2 */
template <typename T, chain_form FORM, bool FULL>
static chain_kernel find_kernel(int slots)
{
    return slots == 5   ? persistent_kernel<T, 5, FORM, FULL>
           : slots == 3 ? persistent_kernel<T, 3, FORM, FULL>
                        : persistent_kernel<T, 2, FORM, FULL>;
}

template <chain_form FORM, bool FULL>
static chain_kernel find_kernel(const struct queue *q, int slots)
{
    return q->act == DTYPE_BF16 ? find_kernel<__nv_bfloat16, FORM, FULL>(slots)
                                : find_kernel<__half, FORM, FULL>(slots);
}

template <chain_form FORM, bool FULL>
static void codes_open(struct queue *q, int max_shared)
{
    for (int slots : {5, 3, 2})
        CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_kernel<FORM, FULL>(q, slots),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared));
}

template <chain_form FORM, bool FULL>
static void codes_run(struct queue *q, int slots, const struct chain_args *a)
{
    launch_chain(q, find_kernel<FORM, FULL>(q, slots), *a);
}

#endif
