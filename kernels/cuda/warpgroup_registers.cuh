/* kernels/cuda/warpgroup_registers.cuh - products of a warpgroup (warpgroup.cuh) whose first matrix is in registers and
 * whose second one lies in rows. */
#ifndef KERNELS_CUDA_WARPGROUP_REGISTERS_CUH
#define KERNELS_CUDA_WARPGROUP_REGISTERS_CUH

#include "kernels/cuda/warpgroup.cuh"

#define PRODUCT_OF_ROWS(N, HALF, A0, A1, A2, A3, B)                                                     \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, 1, 0; wgmma.mma_async.sync.aligned.m64n" #N      \
                 "k16.f32.bf16.bf16 {" NAMES_##HALF "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B \
                                                    ", keep, 1, 1, 0; }"                                \
                 : LIST_##HALF(c, 0)                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* c += a b^T of 16 columns each. a: [64, 16], as the accumulator's layout for 16 columns, in pairs; b: [N, 16], as
 * warpgroup_matrix says. */
template <int HALF>
__device__ static inline void warpgroup_product_of_rows(float (&c)[HALF], const uint32_t (&a)[4], uint64_t b)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (HALF == 8)
        PRODUCT_OF_ROWS(16, 8, 8, 9, 10, 11, 12);
    else if constexpr (HALF == 16)
        PRODUCT_OF_ROWS(32, 16, 16, 17, 18, 19, 20);
    else if constexpr (HALF == 32)
        PRODUCT_OF_ROWS(64, 32, 32, 33, 34, 35, 36);
    else if constexpr (HALF == 40)
        PRODUCT_OF_ROWS(80, 40, 40, 41, 42, 43, 44);
    else if constexpr (HALF == 64)
        PRODUCT_OF_ROWS(128, 64, 64, 65, 66, 67, 68);
    else
        static_assert(HALF == 0, "an unsupported width");
#endif
}

#undef PRODUCT_OF_ROWS

#endif
