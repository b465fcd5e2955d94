/* kernels/cuda/tensor.cuh - shared by matmul, attention and the persistent kernel: tensor-core products of 16-bit
 * numbers, asynchronous copies to shared memory, and launches that overlap the end of the preceding kernel */
#ifndef CUDA_TENSOR_CUH
#define CUDA_TENSOR_CUH

#include "kernels/cuda/device.cuh"

/* c += a b, a: [16, 16], b: [16, 8]. With g = lane / 4 and p = 2 (lane % 4), a lane holds
 * a0 = a[g][p..], a1 = a[g + 8][p..], a2 = a[g][p + 8..], a3 = a[g + 8][p + 8..]; b0 = b[p..][g], b1 = b[p + 8..][g];
 * c = c[g][p], c[g][p + 1], c[g + 8][p], c[g + 8][p + 1]. (PTX ISA, mma.m16n8k16.) */
template <typename T>
__device__ static inline void tensor_mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1);
template <>
__device__ inline void tensor_mma<__half>(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                          uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <>
__device__ inline void tensor_mma<__nv_bfloat16>(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                 uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The same with half the columns of a and rows of b, of which a lane holds a0 = a[g][p..], a1 = a[g + 8][p..]; b0 =
 * b[p..][g]. (mma.m16n8k8.) */
template <typename T>
__device__ static inline void tensor_mma_narrow(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0);
template <>
__device__ inline void tensor_mma_narrow<__half>(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}
template <>
__device__ inline void tensor_mma_narrow<__nv_bfloat16>(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

/* Two floats as the operand of a product: the first in the low half. */
template <typename T>
__device__ static inline uint32_t tensor_pack(float low, float high);
template <>
__device__ inline uint32_t tensor_pack<__half>(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}
template <>
__device__ inline uint32_t tensor_pack<__nv_bfloat16>(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* And back. */
template <typename T>
__device__ static inline float2 tensor_unpack(uint32_t pair);
template <>
__device__ inline float2 tensor_unpack<__half>(uint32_t pair)
{
    return __half22float2(*(const __half2 *)&pair);
}
template <>
__device__ inline float2 tensor_unpack<__nv_bfloat16>(uint32_t pair)
{
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/* The products of two pairs, each rounded to T. */
template <typename T>
__device__ static inline uint32_t tensor_multiply(uint32_t a, uint32_t b);
template <>
__device__ inline uint32_t tensor_multiply<__half>(uint32_t a, uint32_t b)
{
    __half2 c = __hmul2(*(const __half2 *)&a, *(const __half2 *)&b);
    return *(const uint32_t *)&c;
}
template <>
__device__ inline uint32_t tensor_multiply<__nv_bfloat16>(uint32_t a, uint32_t b)
{
    __nv_bfloat162 c = __hmul2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b);
    return *(const uint32_t *)&c;
}

/* Four 8 x 8 matrices of 16-bit numbers; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ static inline void tensor_load(uint32_t (&r)[4], const void *shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared))
                 : "memory");
}
__device__ static inline void tensor_load_transposed(uint32_t (&r)[4], const void *shared)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared))
                 : "memory");
}

/* Copies 16 bytes to shared memory, zeros unless `wanted`; `global` must point to readable memory in any case. */
__device__ static inline void async_copy(void *shared, const void *global, bool wanted)
{
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
        "l"(global), "r"(wanted ? 16 : 0)
        : "memory");
}

/* The same for shared-memory addresses of instructions, unconditionally. */
__device__ static inline void async_copy(uint32_t shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

/* Copies since the last commit form a group; waits until at most `left` groups of this thread are pending. */
__device__ static inline void async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int left>
__device__ static inline void async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* 2^x within 2 ulp; 0 for -infinity. */
__device__ static inline float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* In a kernel that may begin early: before this call a thread may only access memory that no preceding kernel of the
 * stream writes. A thread that accesses nothing else need not call it, but some thread of every block must. */
__device__ static inline void wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/* Lets the next kernel begin, if it was launched by launch_early. It still waits for this one's end before it reads.
 * Never use it in a kernel that an NCCL collective may follow, see after_previous_alone. */
__device__ static inline void let_next_begin(void)
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Launches a kernel that calls wait_for_previous; where the device supports it, it begins while the preceding one ends
 * (programmatic dependent launch). */
template <typename... P, typename... A>
static inline void launch_early(struct queue *q, bool early, void (*kernel)(P...), dim3 grid, int threads,
                                size_t shared_bytes, A... args)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = cuda_stream(q);
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    CUDA_TRY(q, cudaLaunchKernelEx(&config, kernel, P(args)...));
}

#endif
