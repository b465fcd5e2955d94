/* kernels/cuda/bulk_copy.cuh - the tensor memory accelerator copies boxes of a matrix to shared memory; barriers report
 * their arrival. Requires compute capability 9.0; code for older devices compiles and must not run. */
#ifndef KERNELS_CUDA_BULK_COPY_CUH
#define KERNELS_CUDA_BULK_COPY_CUH

#include "kernels/cuda/device.cuh"

#include <cuda.h>

/* The shared-memory address that the instructions below take. */
__device__ static inline uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* A barrier of 8 bytes (mbarrier). A phase ends when the expected arrivals and bytes have come. */
__device__ static inline void barrier_open(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* To be called after barrier_open, before other threads use the barriers. */
__device__ static inline void barriers_opened(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ static inline void barrier_arrive(uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

/* Counts as `count` arrivals. */
__device__ static inline void barrier_arrive(uint32_t barrier, int count)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
#endif
}

/* Arrives, and makes the phase expect this many bytes. */
__device__ static inline void barrier_expect(uint32_t barrier, int bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}

__device__ static inline bool barrier_ended(uint32_t barrier, int phase)
{
    uint32_t done = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
#endif
    return done;
}

/* Waits until a phase has ended; phases are 0, 1, 0, 1, ... The one before the first counts as ended. */
__device__ static inline void barrier_wait(uint32_t barrier, int phase)
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

/* Copies the map's box that begins at (x, y, z): elements outside the matrix are zeros, and their bytes count. For data
 * read only once: evicted first from L2. */
__device__ static inline void box_copy(uint32_t into, const CUtensorMap *map, int x, int y, int z, uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(into),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy)
                 : "memory");
#endif
}

/* The same for data that other blocks will read, too. */
__device__ static inline void box_copy_shared(uint32_t into, const CUtensorMap *map, int x, int y, int z,
                                              uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(into),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
                 : "memory");
#endif
}

/* A fence between writes to global memory that this thread has observed and copies that read them. */
__device__ static inline void copies_see_writes(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/* A fence between this thread's writes to shared memory and later copies there, which other threads request. */
__device__ static inline void shared_before_copies(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Copies `bytes` contiguous bytes; the number and both addresses are multiples of 16. */
__device__ static inline void bulk_copy(uint32_t into, const void *from, uint32_t bytes, uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(into),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
#endif
}

/* The same as a prefetch to L2. */
__device__ static inline void bulk_prefetch(const void *from, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

/* The same box as a prefetch to L2, without notification. */
__device__ static inline void box_prefetch(const CUtensorMap *map, int x, int y, int z)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y),
                 "r"(z)
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
