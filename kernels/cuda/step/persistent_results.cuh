/* kernels/cuda/step/persistent_results.cuh - distributes the results of a product: to the blocks that need them, to the
 * other ranks, to the logits; and keeps the residual stream, of which a block has the rows whose sums it computes. */
#ifndef STEP_PERSISTENT_RESULTS_CUH
#define STEP_PERSISTENT_RESULTS_CUH

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/step/persistent_chain.cuh"

/* Two neighbouring elements of a vector of a wide step. With CHAIN_WIDE_CODES and not `plain` they become f16, and of
 * every 16 columns pairs 0, 2, 4, 6 precede 1, 3, 5, 7: a lane converts four neighbouring codes at once, and so has two
 * neighbouring pairs in the two halves of a product's 16 columns. */
template <typename T>
__device__ static inline void wide_store(const chain_args &a, int vector, size_t at, float x0, float x1,
                                         bool plain = false)
{
    if (CHAIN_WIDE_CODES && !plain) {
        size_t pair = at % 16 / 2, to = at / 16 * 16 + pair / 2 * 2 + pair % 2 * 8;
        *(uint32_t *)((__half *)a.wide.vector[vector] + to) =
            tensor_pack<__half>(x0 * INPUT_HALF_SCALE, x1 * INPUT_HALF_SCALE);
        return;
    }
    *(uint32_t *)((T *)a.wide.vector[vector] + at) = tensor_pack<T>(x0, x1);
}

/* The address of rank `from`'s partial sums in a rank's memory: floats [2][n_ranks][PERSISTENT_MAX_TOKENS][hidden]. */
__device__ static inline size_t chain_sum_at(const chain_args &a, int x, int from, int t, int row)
{
    return (((size_t)x * a.n_ranks + from) * PERSISTENT_MAX_TOKENS + t) * a.hidden + row;
}

/* The one of two buffers that a sum uses: the other ranks may still read the preceding sum. A parallel layer has one
 * sum only, so there the layers alternate. In sequential layers the last sum of a step and the embedding of the next
 * use the same buffer: see `run` of kernels/persistent.h. */
__device__ static inline int chain_sum_place(const chain_args &a, int x, uint32_t epoch)
{
    return a.attention_before == 1 ? x : (int)(epoch & 1);
}

/* Two rows of the residual stream to which a sum is added, at `mine` of the block's; zeros where every block adds the
 * sum to the whole stream. */
__device__ static inline float2 chain_before(const chain_args &a, const chain_shared &sh, int mine)
{
    const float *residual = sh.at<float>(a.at.residual) + mine;
    return CHAIN_OUTPUTS ? make_float2(0, 0) : make_float2(residual[0], residual[1]);
}

/* Keeps two complete neighbouring rows of the residual stream for the next sum, and publishes them to all blocks; in a
 * wide step already multiplied by the weights of the next norm, returning the sum of their squares. */
template <typename T, bool WIDE>
__device__ static inline float chain_set_x(const chain_args &a, const chain_shared &sh, int x, int t, int row, float x0,
                                           float x1, uint32_t epoch)
{
    int mine = row - sh.share[CHAIN_PRODUCTS - 1].begin;
    float *residual = sh.at<float>(a.at.residual) + t * a.at.x_rows + mine;
    float r0 = rounded<T>(x0), r1 = rounded<T>(x1);
    residual[0] = r0;
    residual[1] = r1;
    if (WIDE) {
        const float *scale = sh.at<float>(a.at.scale) + mine;
        bool plain = CHAIN_WIDE_CODES && *sh.at<int>(a.at.hold) != 0;
        wide_store<T>(a, x, (size_t)t * a.hidden + row, r0 * scale[0], r1 * scale[1], plain);
        return r0 * r0 + r1 * r1;
    }
    word_publish(a.x[x] + ((size_t)t * a.hidden + row) / 2, word_pair<T>(x0, x1, epoch));
    return 0;
}

/* Sends this rank's share of two rows of a sum to all ranks, which are divided among a warp's lanes with equal
 * results. */
__device__ static inline void chain_push(const chain_args &a, int x, int t, int row, float s0, float s1, uint32_t epoch,
                                         int first, int step)
{
    size_t at = chain_sum_at(a, chain_sum_place(a, x, epoch), a.rank, t, row);
#pragma unroll 1
    for (int r = first; r < a.n_ranks; r += step)
        word_publish2<true>(a.sum[r] + at, word_float(s0, epoch), word_float(s1, epoch));
}

/* Two rows of the embedded tokens: the sum over the ranks, plus the learned position. */
template <typename T, bool WIDE>
__device__ static inline float chain_embedded(const chain_args &a, const chain_shared &sh, int t, int row, float s0,
                                              float s1, uint32_t epoch)
{
    int at = sh.at<int>(a.at.tokens)[2 * a.n_tokens + t] + a.position_offset;
    if (a.position != nullptr && at >= 0 && at < a.position_rows) {
        const T *position = (const T *)a.position + (size_t)at * a.hidden + row;
        s0 = rounded<T>(s0) + to_float(position[0]);
        s1 = rounded<T>(s1) + to_float(position[1]);
    }
    if (CHAIN_OUTPUTS && a.embed_scale > 0) {
        s0 = rounded<T>(s0) * a.embed_scale;
        s1 = rounded<T>(s1) * a.embed_scale;
    }
    return chain_set_x<T, WIDE>(a, sh, 1, t, row, s0, s1, epoch);
}

static_assert(PERSISTENT_MAX_TOKENS <= CHAIN_WARPS, "every token has a warp");
#if CHAIN_LONE == 2
#include "kernels/cuda/step/persistent_lone_sum.cuh"
#else /* Adds the shares of up to N ranks in this block's rows, in order of the ranks. One warp per token. */
template <typename T, bool WIDE, int N>
__device__ static inline float chain_reduce_ranks(const chain_args &a, const chain_shared &sh, int x, bool embedding,
                                                  uint32_t epoch)
{
    float squares = 0; /* the sum of chain_set_x's results: all these functions return it */
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    int pairs = (share.end - share.begin) / 2, place = chain_sum_place(a, x, epoch), t = threadIdx.x / 32;
    const size_t stride = (size_t)PERSISTENT_MAX_TOKENS * a.hidden;
#pragma unroll 1
    for (int i = threadIdx.x % 32; t < a.n_tokens && i < pairs; i += 32) {
        int row = share.begin + i * 2;
        const unsigned long long *from = a.sum[a.rank] + chain_sum_at(a, place, 0, t, row);
        float2 before = chain_before(a, sh, t * a.at.x_rows + row - share.begin);
        ulonglong2 v[N];
        word_await_ranks(
            v, [&](int r) { return r < a.n_ranks; }, [&](int r) { return from + r * stride; }, epoch);
        float s0 = 0, s1 = 0;
#pragma unroll
        for (int r = 0; r < N; r++) {
            s0 += word_value(v[r].x);
            s1 += word_value(v[r].y);
        }
        if (embedding)
            squares += chain_embedded<T, WIDE>(a, sh, t, row, s0, s1, epoch);
        else
            squares +=
                chain_set_x<T, WIDE>(a, sh, x, t, row, before.x + rounded<T>(s0), before.y + rounded<T>(s1), epoch);
    }
    return squares;
}

template <typename T, bool WIDE>
__device__ static inline float chain_reduce(const chain_args &a, const chain_shared &sh, int x, bool embedding,
                                            uint32_t epoch)
{
    if (a.n_ranks <= 2)
        return chain_reduce_ranks<T, WIDE, 2>(a, sh, x, embedding, epoch);
    if (a.n_ranks <= 4)
        return chain_reduce_ranks<T, WIDE, 4>(a, sh, x, embedding, epoch);
    return chain_reduce_ranks<T, WIDE, PERSISTENT_MAX_RANKS>(a, sh, x, embedding, epoch);
}
#endif
/* In a wide step: one warp per token. (Otherwise pairs are distributed over all threads, which needs fewer
 * registers.) */
template <typename T, bool WIDE>
__device__ static inline float chain_embed(const chain_args &a, const chain_shared &sh, uint32_t epoch)
{
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    int pairs = (share.end - share.begin) / 2, warp = threadIdx.x / 32;
    int end = !WIDE ? pairs * a.n_tokens : warp < a.n_tokens ? (warp + 1) * pairs : 0;
    float squares = 0;
    for (int i = WIDE ? warp * pairs + threadIdx.x % 32 : threadIdx.x; i < end; i += WIDE ? 32 : CHAIN_THREADS) {
        int t = i / pairs, row = share.begin + i % pairs * 2, id = sh.at<int>(a.at.tokens)[t] - a.first_id;
        float e0 = 0, e1 = 0;
        if (id >= 0 && id < a.embed_rows) {
            const T *from = (const T *)a.embed + (size_t)id * a.hidden + row;
            e0 = to_float(from[0]);
            e1 = to_float(from[1]);
        }
        if (a.n_ranks > 1)
            chain_push(a, 1, t, row, e0, e1, epoch, 0, 1);
        else
            squares += chain_embedded<T, WIDE>(a, sh, t, row, e0, e1, epoch);
    }
    return a.n_ranks > 1 ? chain_reduce<T, WIDE>(a, sh, 1, true, epoch) : squares;
}

/* Publishes two neighbouring results of a product to the blocks that need them. `parts` lanes hold them, this is
 * `part`. */
template <typename T, bool WIDE>
__device__ static inline float chain_result(const chain_args &a, const chain_shared &sh, const chain_product &p, int t,
                                            int row, float s0, float s1, int part, int parts, uint32_t epoch)
{
    int mine = t * a.at.x_rows + row - sh.share[CHAIN_PRODUCTS - 1].begin;
    if (p.output == OUTPUT_SUM) {
        if (a.attention_before != 1) {
            float2 kept = *(const float2 *)(sh.at<float>(a.at.kept) + mine);
            s0 += kept.x;
            s1 += kept.y;
        }
        if (a.n_ranks > 1) {
            chain_push(a, p.x, t, row, s0, s1, epoch, part, parts);
        } else if (part == 0) {
            float2 before = chain_before(a, sh, mine);
            return chain_set_x<T, WIDE>(a, sh, p.x, t, row, before.x + rounded<T>(s0), before.y + rounded<T>(s1),
                                        epoch);
        }
    } else if (part > 0) {
        return 0;
    } else if (p.output == OUTPUT_KEPT) {
        *(float2 *)(sh.at<float>(a.at.kept) + mine) = make_float2(s0, s1);
    } else if (p.output == OUTPUT_LOGITS) {
        T *to = (T *)a.logits + (size_t)t * p.rows + row;
        to[0] = from_float<T>(s0);
        if (row + 1 < p.rows)
            to[1] = from_float<T>(s1);
    } else if (WIDE && p.output == OUTPUT_ACTIVATED) {
        wide_store<T>(a, VECTOR_ACTIVATED, (size_t)t * p.rows + row, s0, s1);
    } else {
        unsigned long long *words = p.output == OUTPUT_QKV ? a.qkv : a.activated;
        word_publish(words + ((size_t)t * p.rows + row) / 2, word_pair<T>(s0, s1, epoch));
    }
    return 0;
}

#endif
