/* kernels/cuda/read_once.cuh - copies of weights, which a step reads only once: they leave L2 first, which memory then
 * fills faster. Copies of boxes (bulk_copy.cuh) do that, too. */
#ifndef KERNELS_CUDA_READ_ONCE_CUH
#define KERNELS_CUDA_READ_ONCE_CUH

#include "kernels/cuda/tensor.cuh"

/* As async_copy. */
__device__ static inline void async_copy_once(void *shared, const void *global, bool wanted)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(wanted ? 16 : 0), "l"(policy)
                 : "memory");
}

#endif
