/* kernels/cuda/warpgroup.cuh - tensor-core products by a warpgroup: four neighbouring warps, the first one's number a
 * multiple of four. They run asynchronously until waited for. For compute capability 9.0a; code for other devices
 * compiles but must not run.
 *
 * An accumulator is [64, N] float, N / 2 a thread: with g = lane / 4 and p = 2 (lane % 4), warp w holds rows 16 w + g
 * (elements 4 j and 4 j + 1: columns 8 j + p and 8 j + p + 1) and 16 w + g + 8 (elements 4 j + 2 and 4 j + 3). */
#ifndef KERNELS_CUDA_WARPGROUP_CUH
#define KERNELS_CUDA_WARPGROUP_CUH

#include "kernels/cuda/tensor.cuh"

#include <type_traits>

/* The descriptor of a matrix in shared memory: rows of SPAN bytes in groups of 8, swizzled as by copies of boxes (the
 * 16-byte unit's number is xored with the row's), at multiples of 8 SPAN. `along`: bytes from one column chunk of SPAN
 * bytes to the next, where the matrix is read across its rows; `across`: from 8 rows to the next 8. */
template <int SPAN>
__device__ static inline uint64_t warpgroup_matrix(uint32_t shared, int along, int across)
{
    const uint64_t swizzle = SPAN == 128 ? 1 : SPAN == 64 ? 2 : 3;
    return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)(along >> 4) << 16 | (uint64_t)(across >> 4) << 32 |
           swizzle << 62;
}

/* Required before products that access registers which other instructions have written. */
__device__ static inline void warpgroup_begin(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* The products since the last call form a group; waits until at most `left` groups are pending. */
__device__ static inline void warpgroup_commit(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int left>
__device__ static inline void warpgroup_wait(void)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
#endif
}

/* Required after a wait: no read of the results moves before it. */
template <int N>
__device__ static inline void warpgroup_results(float (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(c[i])::"memory");
}

/* Required between threads' stores to shared memory and the products or copies that read it. */
__device__ static inline void products_see_stores(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* The names of the N / 2 accumulators of a product's instruction, and the list of them. */
#define NAMES_8  "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_16 NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_40 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_48 NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64 NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_80 NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_96 NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_112 \
    NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_128 \
    NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define LIST_8(c, i)                                                                                            \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define LIST_16(c, i)  LIST_8(c, i), LIST_8(c, i + 8)
#define LIST_32(c, i)  LIST_8(c, i), LIST_8(c, i + 8), LIST_8(c, i + 16), LIST_8(c, i + 24)
#define LIST_40(c, i)  LIST_32(c, i), LIST_8(c, i + 32)
#define LIST_48(c, i)  LIST_40(c, i), LIST_8(c, i + 40)
#define LIST_64(c, i)  LIST_32(c, i), LIST_32(c, i + 32)
#define LIST_80(c, i)  LIST_64(c, i), LIST_16(c, i + 64)
#define LIST_128(c, i) LIST_64(c, i), LIST_64(c, i + 64)

/* The numbers of the operands that follow the accumulators: a, b and whether to accumulate; or four of a. */
#define PRODUCT_OF_SHARED(TYPE, N, HALF, A, B, KEEP)                                                        \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #KEEP ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
                 "k16.f32." TYPE "." TYPE " {" NAMES_##HALF "}, %" #A ", %" #B ", keep, 1, 1, 0, 0; }"      \
                 : LIST_##HALF(c, 0)                                                                        \
                 : "l"(a), "l"(b), "n"((int)KEPT))
#define PRODUCT_OF_REGISTERS(TYPE, N, HALF, A0, A1, A2, A3, B)                                                       \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, 1, 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE   \
                 "." TYPE " {" NAMES_##HALF "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", keep, 1, 1, 1; }" \
                 : LIST_##HALF(c, 0)                                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* c = a b^T (KEPT: c + a b^T) of 16 columns each. a: [64, 16], b: [N, 16], both as warpgroup_matrix says. */
template <typename T, bool KEPT, int HALF>
__device__ static inline void warpgroup_product(float (&c)[HALF], uint64_t a, uint64_t b)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const bool f16 = std::is_same<T, __half>::value;
    if constexpr (HALF == 8 && f16)
        PRODUCT_OF_SHARED("f16", 16, 8, 8, 9, 10);
    else if constexpr (HALF == 8)
        PRODUCT_OF_SHARED("bf16", 16, 8, 8, 9, 10);
    else if constexpr (HALF == 16 && f16)
        PRODUCT_OF_SHARED("f16", 32, 16, 16, 17, 18);
    else if constexpr (HALF == 16)
        PRODUCT_OF_SHARED("bf16", 32, 16, 16, 17, 18);
    else if constexpr (HALF == 32 && f16)
        PRODUCT_OF_SHARED("f16", 64, 32, 32, 33, 34);
    else if constexpr (HALF == 32)
        PRODUCT_OF_SHARED("bf16", 64, 32, 32, 33, 34);
    else if constexpr (HALF == 40 && f16)
        PRODUCT_OF_SHARED("f16", 80, 40, 40, 41, 42);
    else if constexpr (HALF == 40)
        PRODUCT_OF_SHARED("bf16", 80, 40, 40, 41, 42);
    else if constexpr (HALF == 48 && f16)
        PRODUCT_OF_SHARED("f16", 96, 48, 48, 49, 50);
    else if constexpr (HALF == 48)
        PRODUCT_OF_SHARED("bf16", 96, 48, 48, 49, 50);
    else if constexpr (HALF == 64 && f16)
        PRODUCT_OF_SHARED("f16", 128, 64, 64, 65, 66);
    else if constexpr (HALF == 64)
        PRODUCT_OF_SHARED("bf16", 128, 64, 64, 65, 66);
    else if constexpr (HALF == 80 && f16)
        PRODUCT_OF_SHARED("f16", 160, 80, 80, 81, 82);
    else if constexpr (HALF == 80)
        PRODUCT_OF_SHARED("bf16", 160, 80, 80, 81, 82);
    else
        static_assert(HALF == 0, "an unsupported width");
#endif
}

/* c += a b. a: [64, 16] in registers, as the accumulator's layout for 16 columns, in pairs; b: [16, N] as
 * warpgroup_matrix says, read across its rows. */
template <typename T, int HALF>
__device__ static inline void warpgroup_product(float (&c)[HALF], const uint32_t *a, uint64_t b)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const bool f16 = std::is_same<T, __half>::value;
    if constexpr (HALF == 32 && f16)
        PRODUCT_OF_REGISTERS("f16", 64, 32, 32, 33, 34, 35, 36);
    else if constexpr (HALF == 32)
        PRODUCT_OF_REGISTERS("bf16", 64, 32, 32, 33, 34, 35, 36);
    else if constexpr (HALF == 40 && f16)
        PRODUCT_OF_REGISTERS("f16", 80, 40, 40, 41, 42, 43, 44);
    else if constexpr (HALF == 40)
        PRODUCT_OF_REGISTERS("bf16", 80, 40, 40, 41, 42, 43, 44);
    else if constexpr (HALF == 48 && f16)
        PRODUCT_OF_REGISTERS("f16", 96, 48, 48, 49, 50, 51, 52);
    else if constexpr (HALF == 48)
        PRODUCT_OF_REGISTERS("bf16", 96, 48, 48, 49, 50, 51, 52);
    else if constexpr (HALF == 64 && f16)
        PRODUCT_OF_REGISTERS("f16", 128, 64, 64, 65, 66, 67, 68);
    else if constexpr (HALF == 64)
        PRODUCT_OF_REGISTERS("bf16", 128, 64, 64, 65, 66, 67, 68);
    else if constexpr (HALF == 128 && f16)
        PRODUCT_OF_REGISTERS("f16", 256, 128, 128, 129, 130, 131, 132);
    else if constexpr (HALF == 128)
        PRODUCT_OF_REGISTERS("bf16", 256, 128, 128, 129, 130, 131, 132);
    else
        static_assert(HALF == 0, "an unsupported width");
#endif
}

#undef PRODUCT_OF_SHARED
#undef PRODUCT_OF_REGISTERS

#endif
