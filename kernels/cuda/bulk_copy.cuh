/* kernels/cuda/bulk_copy.cuh - copies of boxes of a matrix to shared memory by the tensor memory accelerator, and the
 * barriers that tell of their arrival. From compute capability 9.0 on; code for older devices compiles and must not run. */
#ifndef KERNELS_CUDA_BULK_COPY_CUH
#define KERNELS_CUDA_BULK_COPY_CUH

#include "kernels/cuda/device.cuh"

#include <cuda.h>

/* Bytes of shared memory as the instructions below name them. */
__device__ static inline uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* A barrier of 8 bytes: each of its phases ends when one thread has said what it expects and all of that has arrived. */
__device__ static inline void arrival_open(uint32_t barrier)
{
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

/* After arrival_open, before the first copy. */
__device__ static inline void arrivals_opened(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ static inline void arrival_expect(uint32_t barrier, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}

/* Until the phase has ended; phases are 0, 1, 0, 1, ... */
__device__ static inline void arrival_wait(uint32_t barrier, uint32_t phase)
{
#if __CUDA_ARCH__ >= 900
    uint32_t done = 0;
    do
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(phase)
                     : "memory");
    while (!done);
#else
    __trap();
#endif
}

/* What this thread has read of shared memory is read before copies that it, or who synchronises with it, asks for next. */
__device__ static inline void shared_reads_done(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* The map's box at (column, row): elements outside the matrix come as zeros and count as bytes all the same. */
__device__ static inline void box_copy(uint32_t into, const CUtensorMap *map, int column, int row, uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(into),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
#endif
}

__device__ static inline void box_map_prefetch(const CUtensorMap *map)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}

#endif
