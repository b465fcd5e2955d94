/* kernels/cuda/warpgroup_codes.cuh - products of a warpgroup (warpgroup.cuh) of E4M3 codes, 32 columns at a time. The
 * tensor cores' accumulation within such products has about 14 bits: accumulate many columns in other registers. */
#ifndef KERNELS_CUDA_WARPGROUP_CODES_CUH
#define KERNELS_CUDA_WARPGROUP_CODES_CUH

#include "kernels/cuda/warpgroup.cuh"

#define PRODUCT_OF_CODES(N, HALF, A, B, KEEP)                                                               \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #KEEP ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
                 "k32.f32.e4m3.e4m3 {" NAMES_##HALF "}, %" #A ", %" #B ", keep, 1, 1; }"                    \
                 : LIST_##HALF(c, 0)                                                                        \
                 : "l"(a), "l"(b), "n"((int)KEPT))

/* c = a b^T (KEPT: c + a b^T) of 32 columns each. a: [64, 32], b: [N, 32], both as warpgroup_matrix says. */
template <bool KEPT, int HALF>
__device__ static inline void warpgroup_product_of_codes(float (&c)[HALF], uint64_t a, uint64_t b)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (HALF == 16)
        PRODUCT_OF_CODES(32, 16, 16, 17, 18);
    else if constexpr (HALF == 32)
        PRODUCT_OF_CODES(64, 32, 32, 33, 34);
    else if constexpr (HALF == 48)
        PRODUCT_OF_CODES(96, 48, 48, 49, 50);
    else if constexpr (HALF == 64)
        PRODUCT_OF_CODES(128, 64, 64, 65, 66);
    else
        static_assert(HALF == 0, "an unsupported width");
#endif
}

#define PRODUCT_OF_CODE_REGISTERS(N, NAMES, A0, A1, A2, A3, B, KEEP)                          \
    "{ .reg .pred keep; setp.ne.b32 keep, " #KEEP ", 0; wgmma.mma_async.sync.aligned.m64n" #N \
    "k32.f32.e4m3.e4m3 {" NAMES "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", keep, 1, 1; }"

/* The same with a: [64, 32] in registers, columns 4 p / 2 to 4 p / 2 + 3 of rows g and g + 8, then those 16 after them
 * (see warpgroup.cuh); b: [N, 32] at any descriptor. */
template <bool KEPT, int HALF>
__device__ static inline void warpgroup_product_of_codes(float (&c)[HALF], const uint32_t (&a)[4], uint64_t b)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (HALF == 4 && KEPT)
        asm volatile(PRODUCT_OF_CODE_REGISTERS(8, "%0, %1, %2, %3", 4, 5, 6, 7, 8, 1)
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (HALF == 4)
        asm volatile(PRODUCT_OF_CODE_REGISTERS(8, "%0, %1, %2, %3", 4, 5, 6, 7, 8, 0)
                     : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (HALF == 8 && KEPT)
        asm volatile(PRODUCT_OF_CODE_REGISTERS(16, NAMES_8, 8, 9, 10, 11, 12, 1)
                     : LIST_8(c, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (HALF == 8)
        asm volatile(PRODUCT_OF_CODE_REGISTERS(16, NAMES_8, 8, 9, 10, 11, 12, 0)
                     : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3]), "=f"(c[4]), "=f"(c[5]), "=f"(c[6]), "=f"(c[7])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else
        static_assert(HALF == 0, "an unsupported width");
#endif
}

#undef PRODUCT_OF_CODE_REGISTERS
#undef PRODUCT_OF_CODES

#endif
