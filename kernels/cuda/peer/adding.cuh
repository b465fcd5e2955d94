/* kernels/cuda/peer/adding.cuh - elements of several ranks added in the order of the ranks, in float, and rounded once,
 * 16 bytes at a time: what peer_sum.cu and beside.cu share, so that both have the same bits. */
#ifndef PEER_ADDING_CUH
#define PEER_ADDING_CUH

#include "kernels/cuda/device.cuh"

/* The sum of n vectors of elements, in their order. */
template <typename T, int R>
__device__ static inline uint4 add_parts(const uint4 (&v)[R], int n)
{
    const int N = 16 / sizeof(T);
    float sum[N];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const vec<T, N> part = *(const vec<T, N> *)&v[r];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (r < n)
                sum[i] = r == 0 ? to_float(part.e[i]) : sum[i] + to_float(part.e[i]);
    }
    vec<T, N> out;
#pragma unroll
    for (int i = 0; i < N; i++)
        out.e[i] = from_float<T>(sum[i]);
    return *(const uint4 *)&out;
}

/* The i-th 16 bytes of n elements, padded with zeros. */
template <typename T>
__device__ static inline uint4 vector_load(const T *data, unsigned i, size_t n)
{
    const int N = 16 / sizeof(T);
    size_t first = (size_t)i * N;
    if (first + N <= n)
        return ((const uint4 *)data)[i];
    vec<T, N> v;
    for (int k = 0; k < N; k++)
        v.e[k] = first + k < n ? data[first + k] : from_float<T>(0);
    return *(const uint4 *)&v;
}

template <typename T>
__device__ static inline void vector_store(T *data, unsigned i, size_t n, const uint4 &x)
{
    const int N = 16 / sizeof(T);
    size_t first = (size_t)i * N;
    if (first + N <= n) {
        ((uint4 *)data)[i] = x;
        return;
    }
    const vec<T, N> v = *(const vec<T, N> *)&x;
    for (int k = 0; k < N; k++)
        if (first + k < n)
            data[first + k] = v.e[k];
}

#endif
