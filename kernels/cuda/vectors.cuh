/* kernels/cuda/vectors.cuh - vectors of elements in their stored type, two 16-bit elements per register, and as
 * floats. */
#ifndef KERNELS_CUDA_VECTORS_CUH
#define KERNELS_CUDA_VECTORS_CUH

#include "kernels/cuda/tensor.cuh"

#include <type_traits>

/* N elements of 16 bits. The compiler gives each element of a vec a register of its own. */
template <typename T, int N>
struct alignas(sizeof(T) * N) vec_pairs {
    uint32_t e[N / 2];
};

template <typename T, int N>
using packed = std::conditional_t<sizeof(T) == 2 && N % 2 == 0, vec_pairs<T, N>, vec<T, N>>;

template <typename T, int N>
__device__ static inline void widen_pairs(float (&to)[N], const vec<T, N> &v)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = to_float(v.e[i]);
}

template <typename T, int N>
__device__ static inline void widen_pairs(float (&to)[N], const vec_pairs<T, N> &v)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        float2 pair = tensor_unpack<T>(v.e[i]);
        to[2 * i] = pair.x, to[2 * i + 1] = pair.y;
    }
}

/* Floats converted to the type T of an array. */
template <typename T, int N>
__device__ static inline packed<T, N> round_pairs(const float (&x)[N])
{
    packed<T, N> v;
    if constexpr (sizeof(T) == 2 && N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            v.e[i] = tensor_pack<T>(x[2 * i], x[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            v.e[i] = from_float<T>(x[i]);
    }
    return v;
}

/* v, hidden from the compiler, so that it does not keep the floats of an earlier unpacking in registers. */
template <typename T, int N>
__device__ static inline vec<T, N> as_new(const vec<T, N> &v)
{
    return v;
}

template <typename T, int N>
__device__ static inline vec_pairs<T, N> as_new(vec_pairs<T, N> v)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        asm volatile("" : "+r"(v.e[i]));
    return v;
}

#endif
