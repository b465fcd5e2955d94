/* kernels/cuda/step/persistent_outputs.cuh - the input of a product in kernels with CHAIN_OUTPUTS, for models that also
 * normalise the outputs of attention and MLP, x += norm(output), or whose norms' weights are differences from 1. A
 * block has only some rows of an output when it publishes them, and their norm needs all. So every block keeps the
 * whole residual stream: it waits for the output, normalises it, adds it, and normalises the sum. All blocks get the
 * same bits, and there are no more hand-overs than without such norms. The embedding is added to zeros. */
#ifndef STEP_PERSISTENT_OUTPUTS_CUH
#define STEP_PERSISTENT_OUTPUTS_CUH

#include "kernels/cuda/step/persistent_input.cuh"

/* Called by the threads that chain_sync synchronises, before it. */
__device__ static inline void stream_clear(const chain_args &a, const chain_shared &sh)
{
    uint32_t *stream = sh.at<uint32_t>(a.at.stream);
    for (int i = threadIdx.x; i < a.n_tokens * a.hidden / 2; i += CHAIN_THREADS)
        stream[i] = 0;
}

/* Four neighbouring elements of the residual stream, in shared memory, plus y: also stored. */
template <typename T>
__device__ static inline uint2 stream_add(uint2 *stream, uint2 y)
{
    float2 x0 = tensor_unpack<T>(stream->x), x1 = tensor_unpack<T>(stream->y);
    float2 y0 = tensor_unpack<T>(y.x), y1 = tensor_unpack<T>(y.y);
    return *stream = make_uint2(tensor_pack<T>(x0.x + y0.x, x0.y + y0.y), tensor_pack<T>(x1.x + y1.x, x1.y + y1.y));
}

/* 1 / root mean square of the vector of which the block's threads have N units each, as norm_weights.apply takes it.
 * part: float4 [CHAIN_WARPS], not used again before the product's barrier. All threads of the block must call this. */
template <typename T, int N>
__device__ static inline float2 outputs_whole(const chain_args &a, float4 *part, const uint2 (&bits)[N],
                                              const norm_columns &columns)
{
    float4 mine = norm_partial<T, NORM_RMS, N>(bits, columns);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = mine;
    chain_sync();
    return norm_whole<NORM_RMS>(part, a.inverse_hidden, a.eps);
}

/* words: of the output, [n_tokens][hidden / 2]; out_weight: of its norm, NULL: it has none; weight: of the sum's */
template <typename T, norm_kind KIND, int N, typename U>
__device__ static inline void input_added(const chain_args &a, const chain_shared &sh, const U &units,
                                          const unsigned long long *words, uint32_t epoch, const void *weight,
                                          const void *out_weight)
{
    const norm_weights<T, KIND, N> output(units, out_weight, nullptr), sum(units, weight, nullptr);
    const norm_columns columns(units);
#pragma unroll 1
    for (int t = 0; t < a.n_tokens; t++) {
        uint2 bits[1][N], *stream = sh.at<uint2>(a.at.stream) + (t * a.hidden + units.column) / UNIT_COLUMNS;
        float4 *part = sh.at<float4>(a.at.stats) + 2 * t * CHAIN_WARPS;
        input_await<T, N, 1>(a, units, words, t, epoch, bits);
        uint2(&x)[N] = bits[0];
        if (out_weight != nullptr) {
            float2 whole = outputs_whole<T, N>(a, part, x, columns);
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] = output.apply(whole, i, x[i]);
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (units.has(i))
                x[i] = stream_add<T>(stream + units.offset(i) / UNIT_COLUMNS, x[i]);
        float2 whole = outputs_whole<T, N>(a, part + CHAIN_WARPS, x, columns);
#pragma unroll
        for (int i = 0; i < N; i++)
            units.store(i, t, sum.apply(whole, i, x[i]));
    }
}

template <typename T, norm_kind KIND, typename U>
__device__ static inline void input_added_kind(const chain_args &a, const chain_shared &sh, const U &units,
                                               const unsigned long long *words, uint32_t epoch, const void *weight,
                                               const void *out_weight)
{
    static_assert(NORM_UNITS == 4, "one of these");
    if (units.n <= 2)
        input_added<T, KIND, 2>(a, sh, units, words, epoch, weight, out_weight);
    else
        input_added<T, KIND, NORM_UNITS>(a, sh, units, words, epoch, weight, out_weight);
}

template <typename T, typename U>
__device__ static inline void input_added_any(const chain_args &a, const chain_shared &sh, const U &units,
                                              const unsigned long long *words, uint32_t epoch, const void *weight,
                                              const void *out_weight)
{
    if (a.norm == NORM_RMS)
        input_added_kind<T, NORM_RMS>(a, sh, units, words, epoch, weight, out_weight);
    else
        input_added_kind<T, NORM_RMS_OFFSET>(a, sh, units, words, epoch, weight, out_weight);
}

#endif
