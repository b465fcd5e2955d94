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
    vec<T, 4> w[NORM_UNITS], b[NORM_UNITS];

    /* value: of an element where the model has none */
    __device__ static vec<T, 4> fetch(const void *from, int column, float value)
    {
        if (from != nullptr && column >= 0)
            return input_vector<T>(*(const uint2 *)((const T *)from + column));
        T x = from_float<T>(value);
        return {x, x, x, x};
    }
    __device__ void load(const input_units &units, const void *weight, const void *bias)
    {
#pragma unroll
        for (int i = 0; i < NORM_UNITS; i++) {
            int c = units.column(threadIdx.x % 32 + i * 32);
            w[i] = fetch(weight, c, 1);
            b[i] = fetch(bias, c, 0);
        }
    }
    /* Unit i: whole: mean and 1 / deviation. */
    __device__ void apply(enum norm_kind kind, float2 whole, int i, vec<T, 4> *x) const
    {
        if (kind == NORM_RMS) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                x->e[k] = from_float<T>(to_float(w[i].e[k]) * rounded<T>(to_float(x->e[k]) * whole.y));
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                x->e[k] =
                    from_float<T>((to_float(x->e[k]) - whole.x) * whole.y * to_float(w[i].e[k]) + to_float(b[i].e[k]));
        }
    }
};

/* A warp's share of a token's statistics: sum, squares (around the warp's own mean, for LayerNorm), columns, of which a lane
 * has n_mine units. */
__device__ static inline float4 norm_partial(enum norm_kind kind, const float (&x)[NORM_UNITS][4], int n_mine,
                                             float n_columns)
{
    float sum = 0, square = 0, mean = 0;
    if (kind == NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < NORM_UNITS; i++)
            sum += x[i][0] + x[i][1] + x[i][2] + x[i][3];
        sum = warp_sum(sum);
        mean = n_columns > 0 ? sum / n_columns : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < NORM_UNITS; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float d = i < n_mine ? x[i][k] - mean : 0.0f; /* a lane's units outside come last */
            square += d * d;
        }
    return make_float4(sum, warp_sum(square), n_columns, 0);
}

/* Over the 16 lanes of each half of a warp. */
__device__ static inline float norm_sum(float x)
{
#pragma unroll
    for (int d = CHAIN_WARPS / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Mean and 1 / deviation out of the warps' shares, one for each lane: one after the other they took longer than the rest of
 * an input. */
__device__ static inline float2 norm_whole(enum norm_kind kind, const float4 *part, int dim, float eps)
{
    float4 p = part[threadIdx.x % CHAIN_WARPS];
    float mean = 0, away = 0;
    if (kind == NORM_LAYER) {
        mean = norm_sum(p.x) / (float)dim;
        away = p.z > 0 ? p.x / p.z - mean : 0.0f;
    }
    return make_float2(mean, 1.0f / sqrtf(norm_sum(p.y + p.z * away * away) / (float)dim + eps));
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
    float n_columns = (float)(warp_sum(n_mine) * 4);
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
        float4 part = norm_partial(a.norm, x, n_mine, n_columns);
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
            norm.apply(a.norm, whole, i, &x);
            *place = *(const uint2 *)&x;
        }
    }
    __syncwarp();
}

#endif
