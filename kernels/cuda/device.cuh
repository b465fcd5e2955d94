/* kernels/cuda/device.cuh - shared by the kernels: checks, NVTX ranges, number types, vectors of 16 bytes, sums over a
 * block. */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include "kernels/cuda/cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

/* Sticky: records the first failure; the step continues in order. */
#define CUDA_TRY(q, call)                                                         \
    do {                                                                          \
        cudaError_t rc_ = (call);                                                 \
        if (rc_ != cudaSuccess)                                                   \
            ERR(&(q)->err, ERR_DEVICE, "%s: %s", #call, cudaGetErrorString(rc_)); \
    } while (0)

static inline cudaStream_t cuda_stream(const struct queue *q)
{
    return (cudaStream_t)q->stream;
}

/* A range on the timeline of an attached profiler, for the object's lifetime; nearly free otherwise. */
struct nvtx_range {
    explicit nvtx_range(const char *name)
    {
        nvtxRangePushA(name);
    }
    ~nvtx_range()
    {
        nvtxRangePop();
    }
};

__device__ static inline float to_float(float x)
{
    return x;
}
__device__ static inline float to_float(__half x)
{
    return __half2float(x);
}
__device__ static inline float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

template <typename T>
__device__ static inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x)
{
    return x;
}
template <>
__device__ inline __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* x rounded to T. */
template <typename T>
__device__ static inline float rounded(float x)
{
    return to_float(from_float<T>(x));
}

/* Calls f(T()) for the number type. */
template <typename F>
static inline void with_type(enum dtype type, F f)
{
    switch (type) {
    case DTYPE_F16:
        f(__half());
        break;
    case DTYPE_BF16:
        f(__nv_bfloat16());
        break;
    default:
        f(float());
    }
}

/* N elements that are loaded and stored together. */
template <typename T, int N>
struct alignas(sizeof(T) * N) vec {
    T e[N];
};

/* Elements per 16 bytes if all pointers and the row length are aligned; else 1. */
template <typename T>
static inline bool vectors_fit(size_t row_length, const void *a, const void *b = nullptr, const void *c = nullptr)
{
    return row_length % (16 / sizeof(T)) == 0 && ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
}

/* Element i of a vector of weights of any type; p NULL: `missing`. */
__device__ static inline float weight_at(const void *p, enum dtype type, int i, float missing)
{
    if (p == nullptr)
        return missing;
    if (type == DTYPE_F32)
        return ((const float *)p)[i];
    if (type == DTYPE_F16)
        return __half2float(((const __half *)p)[i]);
    return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

template <typename X>
__device__ static inline X warp_sum(X x)
{
    for (int d = 16; d > 0; d /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* The sum over the block, for every thread, the same bits at every run. blockDim.x: a multiple of 32. */
template <typename X>
__device__ static inline X block_sum(X x)
{
    __shared__ X part[32];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : X(0);
    x = warp_sum(x);
    __syncthreads();
    return x;
}

/* The first line of a kernel started by `launch`: before it only weights may be accessed, which no kernel of a step
 * writes. From here the next kernel may be scheduled, and waits in its own first line. */
__device__ static inline void after_previous()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* The same for a kernel that a collective of NCCL may follow, which must not begin early: NCCL 2.28 has kernels that
 * are launched early and do not wait (those for symmetric memory, which Lockstep does not register, but later versions
 * may use them). */
__device__ static inline void after_previous_alone()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/* Redistributes a block's registers (setmaxnreg): all threads of a warpgroup, four neighbouring warps, get N registers.
 * A warpgroup that takes registers waits until others have released theirs. N: a multiple of 8. */
template <int N>
__device__ static inline void give_registers(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

template <int N>
__device__ static inline void take_registers(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* Starts a kernel whose first line is after_previous, while the previous kernel ends if the device supports it.
 * cluster: number of neighbouring blocks in the grid's x per cluster; must be 1 on devices where kernels cannot begin
 * early. */
template <typename... P, typename... A>
static inline void launch_clusters(struct queue *q, int cluster, void (*kernel)(P...), dim3 grid, dim3 block,
                                   size_t shared_bytes, A... args)
{
    cudaLaunchAttribute attribute[2] = {};
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = (unsigned)cluster;
    attribute[1].val.clusterDim.y = attribute[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = cuda_stream(q);
    config.attrs = attribute;
    config.numAttrs = !cuda_state(q)->launches_early ? 0 : cluster > 1 ? 2 : 1;
    CUDA_TRY(q, cudaLaunchKernelEx(&config, kernel, P(args)...));
}

/* The same without clusters. */
template <typename... P, typename... A>
static inline void launch(struct queue *q, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, A... args)
{
    launch_clusters(q, 1, kernel, grid, block, shared_bytes, args...);
}

/* The number of blocks of `threads` for n elements with a stride loop, within the limit of the grid's x dimension. */
static inline unsigned blocks_for(size_t n, int threads)
{
    size_t blocks = (n + threads - 1) / threads;
    return (unsigned)(blocks < 65536 ? blocks : 65536);
}

#endif
