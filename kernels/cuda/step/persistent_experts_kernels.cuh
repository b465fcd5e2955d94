/* kernels/cuda/step/persistent_experts_kernels.cuh - kernels for mixtures of experts, of activations of type T and
 * experts' weights of FORM. Each pair has a file of its own, as persistent_experts_bf16.cu, since they take long to
 * compile. */
#ifndef STEP_PERSISTENT_EXPERTS_KERNELS_CUH
#define STEP_PERSISTENT_EXPERTS_KERNELS_CUH

#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/step/persistent_experts.cuh"
#include "kernels/cuda/step/persistent_experts_kernels.h"

typedef void (*expert_kernel)(struct expert_args);

/* slots: of the ring; 5, 3 or 2 */
template <typename T, chain_form FORM>
static expert_kernel find_expert_kernel(int slots)
{
    return slots == 5   ? persistent_experts_kernel<T, 5, FORM>
           : slots == 3 ? persistent_experts_kernel<T, 3, FORM>
                        : persistent_experts_kernel<T, 2, FORM>;
}

template <typename T, chain_form FORM>
static void open_expert_kernels(struct queue *q, int max_shared)
{
    for (int slots : {5, 3, 2})
        CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_expert_kernel<T, FORM>(slots),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, max_shared));
}

static void expert_kernels_patience(struct queue *q, uint32_t for_others, uint32_t for_own)
{
    const decltype(word_patience) patience = {cuda_state(q)->vain, for_others, for_own};
    CUDA_TRY(q, cudaMemcpyToSymbol(word_patience, &patience, sizeof patience));
}

/* As launch_chain. */
template <typename T, chain_form FORM>
static void run_expert_kernel(struct queue *q, int slots, const struct expert_args *a)
{
    cudaLaunchAttribute attribute[2] = {};
    attribute[0].id = cudaLaunchAttributeCooperative;
    attribute[0].val.cooperative = 1;
    attribute[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)cuda_state(q)->n_multiprocessors);
    config.blockDim = dim3(CHAIN_THREADS + STREAM_THREADS);
    config.dynamicSmemBytes = (size_t)a->at.bytes;
    config.stream = cuda_stream(q);
    config.attrs = attribute;
    config.numAttrs = cuda_state(q)->launches_early ? 2 : 1;
    CUDA_TRY(q, cudaLaunchKernelEx(&config, find_expert_kernel<T, FORM>(slots), *a));
}

#endif
