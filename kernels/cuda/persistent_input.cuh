/* kernels/cuda/persistent_input.cuh - a product's activations, from words to shared memory. A warp waits only for the
 * columns that it multiplies; the norms' statistics need one barrier of the block. */
#ifndef KERNELS_CUDA_PERSISTENT_INPUT_CUH
#define KERNELS_CUDA_PERSISTENT_INPUT_CUH

#include "kernels/cuda/persistent_chain.cuh"

/* Units of 4 columns (two words, 8 bytes in shared memory) of a warp: unit u is part u % 8 of piece u / 8. */
struct input_units {
    int warp, n, cols, n_steps;

    __device__ input_units(const chain_share &s, int columns)
        : warp(threadIdx.x / 32), n(s.n_steps * 16), cols(columns), n_steps(s.n_steps)
    {
    }
    /* First column; -1: the unit lies outside. */
    __device__ int column(int u) const
    {
        int c = chain_column(warp, u / 8) + u % 8 * 4;
        return u < n && c < cols ? c : -1;
    }
    template <typename T>
    __device__ uint2 *place(const chain_args &a, const chain_shared &sh, int u, int t) const
    {
        return (uint2 *)(sh.at<T>(a.at.input) + chain_input_at(warp, n_steps, u / 8, a.n_tokens, t) + u % 8 * 4);
    }
};

/* As they are; N units a lane are waited for at once. words: [n_tokens][cols / 2] */
template <typename T, int N>
__device__ static inline void input_plain(const chain_args &a, const chain_shared &sh, const input_units &units,
                                          const unsigned long long *words, uint32_t epoch)
{
    int lane = threadIdx.x % 32;
    for (int t = 0; t < a.n_tokens; t++)
        for (int first = lane; first - lane < units.n; first += N * 32) {
            ulonglong2 v[N];
            word_await<false>(
                v,
                [&](int i) {
                    int c = units.column(first + i * 32);
                    return c >= 0 ? words + ((size_t)t * units.cols + c) / 2 : nullptr;
                },
                epoch);
#pragma unroll
            for (int i = 0; i < N; i++)
                if (first + i * 32 < units.n)
                    *units.place<T>(a, sh, first + i * 32, t) = make_uint2((uint32_t)v[i].x, (uint32_t)v[i].y);
        }
    __syncwarp();
}

template <typename T>
__device__ static inline vec<T, 4> input_vector(uint2 bits)
{
    return *(const vec<T, 4> *)&bits;
}

#define NORM_UNITS 4 /* of a lane: 8192 columns */

/* The weights of a norm at a lane's units, fetched before there is anything to wait for. */
template <typename T>
struct norm_weights {
    uint2 w[NORM_UNITS], b[NORM_UNITS];
    bool has_w, has_b;

    __device__ void load(const input_units &units, const void *weight, const void *bias)
    {
        has_w = weight != nullptr;
        has_b = bias != nullptr;
#pragma unroll
        for (int i = 0; i < NORM_UNITS; i++) {
            int c = units.column(threadIdx.x % 32 + i * 32);
            w[i] = has_w && c >= 0 ? *(const uint2 *)((const T *)weight + c) : make_uint2(0, 0);
            b[i] = has_b && c >= 0 ? *(const uint2 *)((const T *)bias + c) : make_uint2(0, 0);
        }
    }
    /* unit: (x - mean) / deviation */
    __device__ float apply(enum norm_kind kind, float unit, int i, int k) const
    {
        float scale = has_w ? to_float(input_vector<T>(w[i]).e[k]) : 1.0f;
        float shift = has_b ? to_float(input_vector<T>(b[i]).e[k]) : 0.0f;
        return kind == NORM_RMS ? scale * rounded<T>(unit) : unit * scale + shift;
    }
};

/* A warp's share of a token's statistics: sum, squares (around the warp's own mean, for LayerNorm), columns. */
__device__ static inline float4 norm_partial(enum norm_kind kind, const float (&x)[NORM_UNITS][4], int n_mine)
{
    float sum = 0, square = 0, n = 0, mean = 0;
    if (kind == NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < NORM_UNITS; i++)
            sum += x[i][0] + x[i][1] + x[i][2] + x[i][3];
        sum = warp_sum(sum);
        n = (float)(warp_sum(n_mine) * 4);
        mean = n > 0 ? sum / n : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < NORM_UNITS; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float d = i < n_mine ? x[i][k] - mean : 0.0f; /* a lane's units outside come last */
            square += d * d;
        }
    return make_float4(sum, warp_sum(square), n, 0);
}

/* Mean and 1 / deviation out of the warps' shares. */
__device__ static inline float2 norm_whole(enum norm_kind kind, const float4 *part, int dim, float eps)
{
    float mean = 0, square = 0;
    if (kind == NORM_LAYER) {
#pragma unroll
        for (int v = 0; v < CHAIN_WARPS; v++)
            mean += part[v].x;
        mean /= (float)dim;
    }
#pragma unroll
    for (int v = 0; v < CHAIN_WARPS; v++) {
        float4 p = part[v];
        float away = kind == NORM_LAYER && p.z > 0 ? p.x / p.z - mean : 0.0f;
        square += p.y + p.z * away * away;
    }
    return make_float2(mean, 1.0f / sqrtf(square / (float)dim + eps));
}

/* The residual stream, normed. words: [n_tokens][hidden / 2]. All threads of the block must come here. */
template <typename T>
__device__ static inline void input_normed(const chain_args &a, const chain_shared &sh, const input_units &units,
                                           const unsigned long long *words, uint32_t epoch, const void *weight,
                                           const void *bias)
{
    int lane = threadIdx.x % 32, n_mine = 0;
    float4 *stats = sh.at<float4>(a.at.stats);
    norm_weights<T> norm;
    norm.load(units, weight, bias);
#pragma unroll
    for (int i = 0; i < NORM_UNITS; i++)
        n_mine += units.column(lane + i * 32) >= 0;
    for (int t = 0; t < a.n_tokens; t++) {
        ulonglong2 v[NORM_UNITS];
        float x[NORM_UNITS][4];
        word_await<false>(
            v,
            [&](int i) {
                int c = units.column(lane + i * 32);
                return c >= 0 ? words + ((size_t)t * units.cols + c) / 2 : nullptr;
            },
            epoch);
#pragma unroll
        for (int i = 0; i < NORM_UNITS; i++) {
            uint2 bits = make_uint2((uint32_t)v[i].x, (uint32_t)v[i].y);
            if (lane + i * 32 < units.n)
                *units.place<T>(a, sh, lane + i * 32, t) = bits;
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[i][k] = to_float(input_vector<T>(bits).e[k]);
        }
        float4 part = norm_partial(a.norm, x, n_mine);
        if (lane == 0)
            stats[t * CHAIN_WARPS + units.warp] = part;
    }
    chain_sync();
    for (int t = 0; t < a.n_tokens; t++) {
        float2 whole = norm_whole(a.norm, stats + t * CHAIN_WARPS, units.cols, a.eps);
#pragma unroll
        for (int i = 0; i < NORM_UNITS; i++) {
            if (units.column(lane + i * 32) < 0)
                continue;
            uint2 *place = units.place<T>(a, sh, lane + i * 32, t);
            vec<T, 4> x = input_vector<T>(*place);
#pragma unroll
            for (int k = 0; k < 4; k++)
                x.e[k] = from_float<T>(norm.apply(a.norm, (to_float(x.e[k]) - whole.x) * whole.y, i, k));
            *place = *(const uint2 *)&x;
        }
    }
    __syncwarp();
}

#endif
