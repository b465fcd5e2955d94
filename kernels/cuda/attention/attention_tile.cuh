/* kernels/cuda/attention/attention_tile.cuh - 16 queries of one warp against blocks of the cache, on the tensor cores.
 * Scores are kept in units of log 2; with online softmax no score leaves the registers. HD: head_dim, or the next
 * supported width; elements beyond head_dim are zeros. */
#ifndef ATTENTION_ATTENTION_TILE_CUH
#define ATTENTION_ATTENTION_TILE_CUH

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/tensor.cuh"

#define ATTENTION_WARPS  4
#define ATTENTION_LOG2_E 1.4426950408889634f

/* C: the cache's element type, T or uint8_t for E4M3 codes. */
template <typename T, typename C = T>
struct attention_args {
    T *out;
    const T *qkv;
    const C *k_cache, *v_cache;
    struct heads heads;
    const int32_t *slot, *pos, *block_table;
    int n_tokens, blocks_per_slot;
    int most_blocks; /* of a sequence */
    int n_alone;     /* this many first tokens are the only ones of their sequences */
    /* for single tokens, see attention_decode.cuh */
    int head_parts, rows_per_item; /* items per KV head, and most query heads of each */
    int max_parts;                 /* of an item's keys */
    float *partial;                /* [items][max_parts][rows_per_item][HD] sums kept for the last part */
    float2 *partial_sums;          /* [items][max_parts][rows_per_item] best score, sum of weights */
    unsigned *n_arrived;           /* [items] zeros between launches */
    /* Prefixes that tokens share, see attention_prompts.cuh; NULL: there are none. shared: [members][n_heads]
     * [shared_parts][HD] sums over the keys of their prefix; shared_sums: their best scores, sums of weights. */
    const struct prefixes *prefixes;
    float *shared;
    float2 *shared_sums;
    int shared_parts; /* most parts of a prefix */
};

/* The number of steps of STEP keys in each part of a prefix. */
template <int STEP>
__device__ static inline int steps_of_part(int n_blocks, int most_parts)
{
    return ((n_blocks * KV_BLOCK_TOKENS + STEP - 1) / STEP + most_parts - 1) / most_parts;
}
template <int STEP>
__device__ static inline int parts_of_prefix(int n_blocks, int most_parts)
{
    int length = steps_of_part<STEP>(n_blocks, most_parts) * STEP;
    return (n_blocks * KV_BLOCK_TOKENS + length - 1) / length;
}

/* The positions [first, last] that token t sees; last < first: none. */
struct attention_range {
    int first, last;
};

template <typename T, typename C>
__device__ static inline attention_range visible(const attention_args<T, C> &a, int slot, int pos)
{
    bool valid = slot >= 0 && pos >= 0 && pos / KV_BLOCK_TOKENS < a.blocks_per_slot; /* only in an unchecked plan */
    int window = a.heads.window, first = window > 0 && pos >= window ? pos - window + 1 : 0;
    if (a.heads.chunk > 0)
        first = pos / a.heads.chunk * a.heads.chunk;
    return {first, valid ? pos : -1};
}

template <typename T, typename C>
__device__ static inline const T *query_row(const attention_args<T, C> &a, int t, int head)
{
    const struct heads &h = a.heads;
    return a.qkv + ((size_t)t * (h.n_heads + 2 * h.n_kv_heads) + head) * h.head_dim;
}

/* The contribution of a head's sink to a sum of weights relative to 2^best; 0 without sinks. The bias of scores counts
 * from the last key that the row sees, so the sink, which has none, is shifted by as much. A sink far above all scores
 * makes the sum infinite and the result 0, which is correct within float's range. */
template <typename T, typename C>
__device__ static inline float sink_weight(const attention_args<T, C> &a, int head, int last, float best)
{
    if (a.heads.sinks == NULL)
        return 0;
    float sink = weight_at(a.heads.sinks, a.heads.sinks_type, head, 0.0f);
    if (a.heads.alibi_slopes)
        sink = fmaf(-a.heads.alibi_slopes[head], (float)last, sink);
    return exp2f(sink * ATTENTION_LOG2_E - best);
}

/* The scale of products with stored keys, and of sums of stored values. */
template <typename T>
__device__ static inline float key_scale(const attention_args<T> &a, int)
{
    return a.heads.scale;
}
template <typename T>
__device__ static inline float key_scale(const attention_args<T, uint8_t> &a, int kv)
{
    return a.heads.scale * a.heads.kv_scales[kv];
}
template <typename T>
__device__ static inline float value_scale(const attention_args<T> &, int)
{
    return 1;
}
template <typename T>
__device__ static inline float value_scale(const attention_args<T, uint8_t> &a, int kv)
{
    return a.heads.kv_scales[a.heads.n_kv_heads + kv];
}

/* The pitch of a block's rows in shared memory, in elements: an odd number of 16-byte units, against bank conflicts. */
template <int HD>
struct attention_tile {
    static const int pitch = HD + 8;
};

/* One warp starts to copy the keys or values of cache block `id` (< 0: zeros), with zeros where no query looks.
 * to: [16][pitch]; pos: of the block's first row. Complete blocks of unpadded heads need no test per piece. */
template <typename T, int HD>
__device__ static inline void copy_block(T *to, const T *cache, const attention_args<T> &a, int id, int kv, int pos,
                                         attention_range seen)
{
    const int PIECES = HD / 8, N = KV_BLOCK_TOKENS * PIECES / 32, PITCH = attention_tile<HD>::pitch;
    int dim = a.heads.head_dim, lane = threadIdx.x % 32;
    const T *from = cache + ((size_t)(id < 0 ? 0 : id) * a.heads.n_kv_heads + kv) * KV_BLOCK_TOKENS * dim;
    if (dim == HD && id >= 0 && pos >= seen.first && pos + KV_BLOCK_TOKENS - 1 <= seen.last) {
        const int ROWS = 32 % PIECES == 0 ? 32 / PIECES : 0; /* blocks that a warp copies at once if they are
                                                                complete */
        uint32_t into = (uint32_t)__cvta_generic_to_shared(to + lane / PIECES * PITCH + lane % PIECES * 8);
        from += lane * 8;
#pragma unroll
        for (int i = 0; i < N; i++) {
            int piece = lane + i * 32, at = piece / PIECES * PITCH + piece % PIECES * 8;
            async_copy(ROWS > 0 ? into + i * ROWS * PITCH * (int)sizeof(T)
                                : (uint32_t)__cvta_generic_to_shared(to + at),
                       from + i * 256);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        int row = (lane + i * 32) / PIECES, column = (lane + i * 32) % PIECES * 8;
        bool wanted = id >= 0 && column < dim && pos + row >= seen.first && pos + row <= seen.last;
        async_copy(to + row * PITCH + column, wanted ? from + row * dim + column : cache, wanted);
    }
}

/* The same for codes, which are converted on the way: the copy is complete when the function returns. Loads 8 at a
 * time; row lengths are multiples of 8. */
template <typename T, int HD>
__device__ static inline void copy_block(T *to, const uint8_t *cache, const attention_args<T, uint8_t> &a, int id,
                                         int kv, int pos, attention_range seen)
{
    const int PIECES = HD / 8, N = KV_BLOCK_TOKENS * PIECES / 32, PITCH = attention_tile<HD>::pitch;
    int dim = a.heads.head_dim, lane = threadIdx.x % 32;
    const uint8_t *from = cache + ((size_t)(id < 0 ? 0 : id) * a.heads.n_kv_heads + kv) * KV_BLOCK_TOKENS * dim;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int row = (lane + i * 32) / PIECES, column = (lane + i * 32) % PIECES * 8;
        bool wanted = id >= 0 && column < dim && pos + row >= seen.first && pos + row <= seen.last;
        uint2 codes = wanted ? *(const uint2 *)(from + row * dim + column) : make_uint2(0, 0);
        uint32_t pair[4] = {codes.x & 0xffff, codes.x >> 16, codes.y & 0xffff, codes.y >> 16};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            __half2_raw x = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)pair[j], __NV_E4M3);
            float2 wide = __half22float2(__half2(x));
            pair[j] = tensor_pack<T>(wide.x, wide.y);
        }
        *(uint4 *)(to + row * PITCH + column) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

/* 16 queries as operand A of the products, in registers or, for wide heads, in the lane's own shared memory. */
template <typename T, int HD>
struct attention_query {
    static const bool in_registers = HD <= 128;
    static const int shared_bytes = in_registers ? 0 : HD / 16 * 32 * 16; /* of a warp */
    uint4 kept[in_registers ? HD / 16 : 1];
    uint4 *shared;

    __device__ static uint32_t pair(const T *row, int column, int dim)
    {
        return row && column < dim ? *(const uint32_t *)(row + column) : 0;
    }
    /* low, high: rows g and g + 8, NULL: zeros */
    __device__ void load(const T *low, const T *high, int dim)
    {
        int c = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < HD / 16; i++) {
            uint4 x = make_uint4(pair(low, i * 16 + c, dim), pair(high, i * 16 + c, dim),
                                 pair(low, i * 16 + c + 8, dim), pair(high, i * 16 + c + 8, dim));
            if (in_registers)
                kept[in_registers ? i : 0] = x;
            else
                shared[i * 32] = x;
        }
    }
    __device__ uint4 get(int i) const
    {
        return in_registers ? kept[in_registers ? i : 0] : shared[i * 32];
    }
};

/* The sums of 16 queries so far; a lane holds parts of rows g = lane / 4 and g + 8. */
template <typename T, int HD>
struct attention_sums {
    float out[HD / 8][4];
    float best[2], sum[2]; /* sum: over this lane's keys only, until finish() */
    int first[2], last[2]; /* keys that the rows see */
    float slope[2];        /* times log2 e */
    float cap;             /* of struct heads, times log2 e */

    __device__ void clear()
    {
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[j][i] = 0;
        for (int i = 0; i < 2; i++) {
            best[i] = -INFINITY;
            sum[i] = 0;
        }
    }

    /* This lane's elements of the result of its row i, after finish(). */
    __device__ void store(int i, T *to, int head_dim) const
    {
        float share = sum[i] > 0 ? 1 / sum[i] : 0.0f;
#pragma unroll
        for (int j = 0; j < HD / 8; j++) {
            int column = j * 8 + threadIdx.x % 4 * 2;
            if (column < head_dim)
                *(uint32_t *)(to + column) = tensor_pack<T>(out[j][2 * i] * share, out[j][2 * i + 1] * share);
        }
    }

    /* Products to scores: scaled, capped, biased, masked. present: a bit for every block. The bias counts from the last
     * key that the row sees, which the softmax does not notice: near it scores are small and exact. */
    template <int BLOCKS>
    __device__ void score(float (&s)[2 * BLOCKS][4], int key0, bool masked, unsigned present, float scale) const
    {
        int key = key0 + threadIdx.x % 4 * 2;
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[j][i] *= scale;
        if (cap > 0)
#pragma unroll
            for (int j = 0; j < 2 * BLOCKS; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[j][i] = cap * tanhf(s[j][i] / cap);
        if (slope[0] != 0 || slope[1] != 0)
#pragma unroll
            for (int j = 0; j < 2 * BLOCKS; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[j][i] = fmaf(slope[i / 2], (float)(key + j * 8 + i % 2 - last[i / 2]), s[j][i]);
        if (masked)
#pragma unroll
            for (int j = 0; j < 2 * BLOCKS; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) { /* bits instead of branches */
                    int at = key + j * 8 + i % 2;
                    bool hidden = (at < first[i / 2]) | (at > last[i / 2]) | !(present >> (j / 2) & 1);
                    s[j][i] = hidden ? -INFINITY : s[j][i];
                }
    }

    /* Turns scores into weights, and rescales the sums to the new best score. */
    template <int BLOCKS>
    __device__ void weigh(float (&s)[2 * BLOCKS][4])
    {
        float top[2] = {best[0], best[1]}, base[2], keep[2];
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                top[i / 2] = fmaxf(top[i / 2], s[j][i]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
            base[i] = top[i] == -INFINITY ? 0.0f : top[i];
            keep[i] = fast_exp2(best[i] - base[i]);
            best[i] = top[i];
            sum[i] *= keep[i];
        }
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[j][i] = fast_exp2(s[j][i] - base[i / 2]);
                sum[i / 2] += s[j][i];
            }
        if (__all_sync(0xffffffffu, keep[0] == 1 && keep[1] == 1))
            return;
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[j][i] *= keep[i / 2];
    }

    /* k, v: BLOCKS consecutive blocks, [16 BLOCKS][pitch]; key0: position of the first key */
    template <int BLOCKS>
    __device__ void attend(const attention_query<T, HD> &query, const T *k, const T *v, int key0, bool masked,
                           unsigned present, float scale)
    {
        const int PITCH = attention_tile<HD>::pitch;
        int lane = threadIdx.x % 32;
        float s[2 * BLOCKS][4];
#pragma unroll
        for (int j = 0; j < 2 * BLOCKS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[j][i] = 0;
        const T *k_lane = k + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll
        for (int c = 0; c < HD / 16; c++) {
            uint4 q = query.get(c);
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) {
                uint32_t r[4];
                tensor_load(r, k_lane + b * 16 * PITCH + c * 16);
                tensor_mma<T>(s[2 * b], q.x, q.y, q.z, q.w, r[0], r[1]);
                tensor_mma<T>(s[2 * b + 1], q.x, q.y, q.z, q.w, r[2], r[3]);
            }
        }
        score<BLOCKS>(s, key0, masked, present, scale);
        weigh<BLOCKS>(s);
        const T *v_lane = v + lane % 16 * PITCH + lane / 16 * 8;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            uint32_t p0 = tensor_pack<T>(s[2 * b][0], s[2 * b][1]), p1 = tensor_pack<T>(s[2 * b][2], s[2 * b][3]);
            uint32_t p2 = tensor_pack<T>(s[2 * b + 1][0], s[2 * b + 1][1]);
            uint32_t p3 = tensor_pack<T>(s[2 * b + 1][2], s[2 * b + 1][3]);
#pragma unroll
            for (int c = 0; c < HD / 16; c++) {
                uint32_t r[4];
                tensor_load_transposed(r, v_lane + b * 16 * PITCH + c * 16);
                tensor_mma<T>(out[2 * c], p0, p1, p2, p3, r[0], r[1]);
                tensor_mma<T>(out[2 * c + 1], p0, p1, p2, p3, r[2], r[3]);
            }
        }
    }

    /* The rows' sums over all lanes. scale: of values */
    __device__ void finish(float scale)
    {
        if (scale != 1)
#pragma unroll
            for (int j = 0; j < HD / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    out[j][i] *= scale;
        for (int i = 0; i < 2; i++) {
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
        }
    }
};

#endif
