/* kernels/cuda/cluster.cuh - clusters: neighbouring blocks that run at the same time and reach each other's shared
 * memory. Requires compute capability 9.0; code for older devices compiles and must not run. */
#ifndef KERNELS_CUDA_CLUSTER_CUH
#define KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/bulk_copy.cuh"

/* All threads of a cluster's blocks meet, in two steps; warps are whole. What a thread wrote before it arrived is seen
 * after the other threads' wait. */
__device__ static inline void cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif
}
__device__ static inline void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
__device__ static inline void cluster_meet(void)
{
    cluster_arrive();
    cluster_wait();
}

/* This block's number in its cluster, and the number of blocks there. */
__device__ static inline int cluster_rank(void)
{
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return (int)rank;
}
__device__ static inline int cluster_blocks(void)
{
    uint32_t n = 1;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
#endif
    return (int)n;
}

/* Arrives at the barrier that a block of the cluster has at the same place as this one. */
__device__ static inline void barrier_arrive_at(uint32_t barrier, int rank)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
#endif
}

/* Four floats that a block of the cluster has at the same place as this one. */
__device__ static inline float4 cluster_load(uint32_t shared, int rank)
{
    float4 v = {};
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %4, %5; "
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there]; }"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(shared), "r"(rank)
                 : "memory");
#endif
    return v;
}

/* Copies a box to both blocks of a cluster of two. */
__device__ static inline void box_copy_to_both(uint32_t into, const CUtensorMap *map, int x, int y, int z,
                                               uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(into),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
#endif
}

#endif
