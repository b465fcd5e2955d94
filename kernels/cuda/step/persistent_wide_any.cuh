/* kernels/cuda/step/persistent_wide_any.cuh - the functions of struct wide_kernels, common to persistent_wide_plain.cu
 * and persistent_wide_e4m3.cu. */
#ifndef STEP_PERSISTENT_WIDE_ANY_CUH
#define STEP_PERSISTENT_WIDE_ANY_CUH

#include "kernels/cuda/step/persistent_attention_codes.cuh"
#include "kernels/cuda/step/persistent_wide.cuh"

static chain_kernel find_wide_kernel(bool full)
{
    return full ? persistent_wide_kernel<__nv_bfloat16, WIDE_SLOTS, true>
                : persistent_wide_kernel<__nv_bfloat16, WIDE_SLOTS, false>;
}

static void open_wide(struct queue *q, bool full, int max_shared)
{
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_wide_kernel(full), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     max_shared));
}

static void run_wide(struct queue *q, bool full, const struct chain_args *a)
{
    launch_chain(q, find_wide_kernel(full), *a);
}

#endif
