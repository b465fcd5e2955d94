/* kernels/cuda/products/row_dots.cuh - a row of weights times some rows of x, by one warp, in float. The order of
 * summation depends on the number types and on the columns, not on the number of rows of x. */
#ifndef PRODUCTS_ROW_DOTS_CUH
#define PRODUCTS_ROW_DOTS_CUH

#include "kernels/cuda/device.cuh"

#define DOT_TOKENS 8 /* rows of x that share a load of the weights */

/* N: elements per load. sum: complete in every lane. */
template <typename T, typename W, int N, int TOKENS>
__device__ static inline void row_dots(float (&sum)[TOKENS], const T *const (&x)[TOKENS], const W *w, int cols)
{
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        sum[t] = 0;
#pragma unroll 2
    for (int k = threadIdx.x % 32 * N; k < cols; k += 32 * N) {
        vec<W, N> weight = *(const vec<W, N> *)(w + k);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            vec<T, N> value = *(const vec<T, N> *)(x[t] + k);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[t] = fmaf(to_float(weight.e[i]), to_float(value.e[i]), sum[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        sum[t] = warp_sum(sum[t]);
}

/* Calls f(T(), W(), elements per load): 16 bytes of the wider type where the rows of x and w allow, otherwise one
 * element */
template <typename F>
static inline void with_dots(enum dtype act, enum dtype type, int cols, const void *x, const void *w, F f)
{
    with_type(act, [&](auto t) {
        with_type(type, [&](auto v) {
            using T = decltype(t);
            using W = decltype(v);
            const int N = 16 / (sizeof(T) > sizeof(W) ? sizeof(T) : sizeof(W));
            if (cols % N == 0 && ((uintptr_t)x | (uintptr_t)w) % 16 == 0)
                f(T(), W(), std::integral_constant<int, N>());
            else
                f(T(), W(), std::integral_constant<int, 1>());
        });
    });
}

#endif
