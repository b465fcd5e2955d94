/* kernels/cuda/persistent_attention.cuh - attention within the persistent kernel. An item is one token and one KV head with
 * some of the query heads that read it. A long sequence's keys are divided among up to CHAIN_PARTS blocks, in a way that
 * depends on their number only; the parts exchange their sums as words and each adds its share of the result. Within a
 * block the warps take groups of 8 keys in turn: scores on the tensor cores, with the keys as the narrow operand straight
 * from the cache; values by hand, each lane some elements of the head. */
#ifndef KERNELS_CUDA_PERSISTENT_ATTENTION_CUH
#define KERNELS_CUDA_PERSISTENT_ATTENTION_CUH

#include "kernels/cuda/persistent_chain.cuh"
#include "kernels/cuda/rotation.cuh"

#define ATTEND_KEYS  8                 /* of a group */
#define ATTEND_HEADS 8                 /* query heads of an item at most: rows of the tensor cores' result */
#define PART_GROUPS  CHAIN_WARPS       /* one for every warp */
#define MIN_GROUPS   (2 * CHAIN_WARPS) /* of a sequence that is divided: less is not worth the hand-over between parts */

/* Query heads of an item at most, if heads have so many elements: registers set the limit. */
__host__ __device__ constexpr int attend_heads(int head_dim)
{
    return head_dim > 128 ? 2 : head_dim > 64 ? 4 : ATTEND_HEADS;
}

/* Items that a KV head's query heads are divided into. */
__host__ __device__ static inline int attend_head_parts(int group, int head_dim)
{
    return (group + attend_heads(head_dim) - 1) / attend_heads(head_dim);
}

/* Parts that every item may be divided into. */
__host__ __device__ static inline int attend_parts(int n_items, int n_blocks)
{
    int parts = n_items > 0 ? n_blocks / n_items : 1;
    return parts < 1 ? 1 : parts < CHAIN_PARTS ? parts : CHAIN_PARTS;
}

/* Scratch in shared memory; HD: head_dim. */
template <typename T, int HD>
struct attend_scratch {
    static const int PITCH = HD + 32; /* so that rows that are read together lie in different banks */
    float vector[ATTEND_HEADS + 2][HD];
    T query[ATTEND_HEADS][PITCH];
    float2 sums[CHAIN_WARPS][ATTEND_HEADS]; /* best score, sum of weights */
    float out[1];                           /* [CHAIN_WARPS][n_rows][HD] */
};

template <typename T>
constexpr int attend_scratch_bytes(int head_dim, int n_rows)
{
    return (ATTEND_HEADS + 2) * head_dim * 4 + ATTEND_HEADS * (head_dim + 32) * (int)sizeof(T) +
           CHAIN_WARPS * ATTEND_HEADS * 8 + CHAIN_WARPS * n_rows * head_dim * 4 + 16;
}

/* An item's part: groups [begin, end) of 8 keys. */
struct attend_item {
    int t, kv, head0, n_rows;   /* query heads [head0, head0 + n_rows) */
    int index, part, n_parts;   /* index: of the part among all, where its words lie */
    int slot, pos, first, last; /* positions seen; last < first: none */
    int begin, end;
    const int32_t *table;

    /* false: there is nothing to do */
    __device__ bool open(const chain_args &a, const chain_shared &sh, const chain_layer &layer, int i, int max_parts)
    {
        const int *tokens = sh.at<int>(a.at.tokens);
        int head_parts = attend_head_parts(a.group, a.head_dim), heads = attend_heads(a.head_dim);
        index = i;
        part = i % max_parts;
        i /= max_parts;
        t = i / head_parts / a.n_kv_heads;
        kv = i / head_parts % a.n_kv_heads;
        int from = (a.first_kv_head + kv) * a.group - a.first_head;
        head0 = max(from, 0) + i % head_parts * heads;
        n_rows = min(head0 + heads, min(from + a.group, a.n_heads)) - head0;
        slot = tokens[a.n_tokens + t];
        pos = tokens[2 * a.n_tokens + t];
        bool valid = slot >= 0 && pos >= 0 && pos / KV_BLOCK_TOKENS < a.blocks_per_slot;
        first = layer.window > 0 && pos >= layer.window ? pos - layer.window + 1 : 0;
        last = valid ? pos : -1;
        table = a.block_table + (ptrdiff_t)slot * a.blocks_per_slot;
        begin = valid ? first / ATTEND_KEYS : 0;
        int end_all = valid ? last / ATTEND_KEYS + 1 : 0, n = end_all - begin;
        n_parts = n > MIN_GROUPS ? min(max_parts, (n + PART_GROUPS - 1) / PART_GROUPS) : 1;
        int length = (n + n_parts - 1) / n_parts;
        begin += part * length;
        end = min(begin + length, end_all);
        return part < n_parts && n_rows > 0;
    }
    /* The block of the cache that has a group of this warp; -1: none. Lane i knows that of the warp's group i. */
    __device__ int group_block(int i) const
    {
        int group = begin + threadIdx.x / 32 + i * CHAIN_WARPS;
        return group < end ? table[group / (KV_BLOCK_TOKENS / ATTEND_KEYS)] : -1;
    }
    /* Elements from the cache's start to the group's first key. */
    __device__ size_t group_at(const chain_args &a, int block, int group) const
    {
        return (((size_t)block * a.n_kv_heads + kv) * KV_BLOCK_TOKENS +
                group % (KV_BLOCK_TOKENS / ATTEND_KEYS) * ATTEND_KEYS) *
               a.head_dim;
    }
};

/* One warp: a head's words to `x` (float, shared), and its norm and rotation there. which: 0 q, 1 k, 2 v. */
template <typename T, int HD>
__device__ static inline void attend_vector(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                            const attend_item &m, int head, int which, float *x, T *to, uint32_t epoch)
{
    const int N = HD > 128 ? HD / 128 : 1;
    int lane = threadIdx.x % 32;
    const T *norm = (const T *)(which == 0 ? layer.q_norm : which == 1 ? layer.k_norm : nullptr);
    float scale[HD / 32];
#pragma unroll
    for (int i = 0; i < HD / 32; i++)
        scale[i] = norm != nullptr ? to_float(norm[lane + i * 32]) : 1.0f;
    size_t row = ((size_t)a.n_heads + 2 * (size_t)a.n_kv_heads) * HD;
    const unsigned long long *words = a.qkv + ((size_t)m.t * row + (size_t)head * HD) / 2;
    ulonglong2 v[N];
    word_await<false>(
        v, [&](int i) { return (lane + i * 32) * 4 < HD ? words + (lane + i * 32) * 2 : nullptr; }, epoch);
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((lane + i * 32) * 4 < HD) {
            uint2 bits = make_uint2((uint32_t)v[i].x, (uint32_t)v[i].y);
            vec<T, 4> e = *(const vec<T, 4> *)&bits;
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[(lane + i * 32) * 4 + k] = to_float(e.e[k]);
        }
    __syncwarp();
    if (norm != nullptr) {
        float square = 0;
#pragma unroll
        for (int i = 0; i < HD / 32; i++)
            square += x[lane + i * 32] * x[lane + i * 32];
        float inverse = 1.0f / sqrtf(warp_sum(square) / HD + a.eps);
#pragma unroll
        for (int i = 0; i < HD / 32; i++)
            x[lane + i * 32] = scale[i] * rounded<T>(x[lane + i * 32] * inverse);
        __syncwarp();
    }
    const float *cos_sin = sh.at<float>(a.at.cos_sin) + m.t * a.rope_dims;
#pragma unroll
    for (int i = 0; i < HD / 32; i++) {
        int d = lane + i * 32;
        float y = which == 2 || a.rope_dims == 0 ? x[d] : rotated(x, cos_sin, a.rope_dims, a.rope_half, d);
        if (to != nullptr)
            to[d] = from_float<T>(y);
    }
}

/* Queries to the scratch; the token's own key and value to the cache, by every block that is going to read them. */
template <typename T, int HD>
__device__ static inline void attend_inputs(attend_scratch<T, HD> *s, const chain_args &a, const chain_shared &sh,
                                            const chain_layer &layer, const attend_item &m, uint32_t epoch)
{
    int warp = threadIdx.x / 32, extra = warp - m.n_rows;
    if (warp < m.n_rows) {
        attend_vector<T, HD>(a, sh, layer, m, m.head0 + warp, 0, s->vector[warp], s->query[warp], epoch);
    } else if (extra < 2 && m.part == m.n_parts - 1) {
        int block = m.last >= m.first ? m.table[m.pos / KV_BLOCK_TOKENS] : -1;
        T *to = nullptr;
        if (block >= 0)
            to = (T *)(extra == 0 ? layer.k_cache : layer.v_cache) +
                 (((size_t)block * a.n_kv_heads + m.kv) * KV_BLOCK_TOKENS + m.pos % KV_BLOCK_TOKENS) * HD;
        attend_vector<T, HD>(a, sh, layer, m, a.n_heads + extra * a.n_kv_heads + m.kv, 1 + extra, s->vector[warp], to,
                             epoch);
    }
}

/* The keys and values of this warp's first groups, on their way to L2 before the queries are there. */
template <int HD>
__device__ static inline void attend_prefetch(const chain_args &a, const chain_layer &layer, const attend_item &m,
                                              int ids)
{
    const int LINES = ATTEND_KEYS * HD * 2 / 128;
    for (int i = 0; i < 2; i++) {
        int block = __shfl_sync(0xffffffffu, ids, i);
        if (block < 0)
            continue;
        size_t at = m.group_at(a, block, m.begin + threadIdx.x / 32 + i * CHAIN_WARPS) * 2;
        for (int l = threadIdx.x % 32; l < 2 * LINES; l += 32) {
            const char *cache = (const char *)(l < LINES ? layer.k_cache : layer.v_cache);
            asm volatile("prefetch.global.L2 [%0];" ::"l"(cache + at + l % LINES * 128));
        }
    }
}

/* E elements of 16 bits as they lie in memory, past L1. */
template <int E>
struct attend_bits {
    uint32_t word[E / 2];
    __device__ void load(const void *from)
    {
        if (E == 8)
            *(uint4 *)word = __ldcg((const uint4 *)from);
        else if (E == 4)
            *(uint2 *)word = __ldcg((const uint2 *)from);
        else
            word[0] = __ldcg((const uint32_t *)from);
    }
    __device__ void clear()
    {
#pragma unroll
        for (int i = 0; i < E / 2; i++)
            word[i] = 0;
    }
};

__device__ static inline float attend_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A warp's sums over its groups. Lane (g, p) = (lane / 4, lane % 4) knows best score and sum of weights of query head g
 * (the sum over its own keys only), and elements E lane .. of all heads' results. */
template <typename T, int HD>
struct attend_sums {
    static const int E = HD / 32, HEADS = attend_heads(HD);
    static const int CHUNKS = HD > 128 ? HD / 64 : HD / 32,
                     KEYS = HD > 128 ? ATTEND_KEYS / 2 : ATTEND_KEYS; /* at once */
    float best, sum, out[HEADS][E];

    __device__ void clear()
    {
        best = -INFINITY;
        sum = 0;
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int e = 0; e < E; e++)
                out[h][e] = 0;
    }

    /* score += q.k over CHUNKS times 32 elements from column c0 on. */
    __device__ static void score_keys(float (&score)[4], const T *query, const T *k, int c0)
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
        attend_bits<8> key[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            key[c].load(k + g * HD + (c0 + c) * 32 + p * 8);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            uint4 q = make_uint4(0, 0, 0, 0);
            if (query != nullptr)
                q = *(const uint4 *)(query + (c0 + c) * 32 + p * 8);
            tensor_mma<T>(score, q.x, 0, q.y, 0, key[c].word[0], key[c].word[1]);
            tensor_mma<T>(score, q.z, 0, q.w, 0, key[c].word[2], key[c].word[3]);
        }
    }

    __device__ static void load_values(attend_bits<E> (&value)[KEYS], const T *v, const attend_item &m, int key0)
    {
#pragma unroll
        for (int i = 0; i < KEYS; i++)
            if (key0 + i >= m.first && key0 + i <= m.last)
                value[i].load(v + i * HD + threadIdx.x % 32 * E);
            else
                value[i].clear(); /* whatever lies there, its weight of 0 must not meet it */
    }

    /* Scores to weights, and the sum so far to the new best; returns what the results so far are multiplied with. */
    __device__ float weigh(float (&weight)[2], const float (&score)[4], const attend_item &m, int key0, float scale)
    {
        float top = best;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = key0 + threadIdx.x % 4 * 2 + i;
            weight[i] = at >= m.first && at <= m.last ? score[i] * scale : -INFINITY;
            top = fmaxf(top, weight[i]);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float base = top == -INFINITY ? 0.0f : top, keep = attend_exp2(best - base);
        best = top;
        sum *= keep;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            weight[i] = attend_exp2(weight[i] - base);
            sum += weight[i];
        }
        return keep;
    }

    /* Keys key0 .. of the group: their values, weighed, to the results. */
    __device__ void accumulate(const attend_bits<E> (&value)[KEYS], const float (&weight)[2], int key0, int n_rows)
    {
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (h < n_rows)
#pragma unroll
                for (int i = 0; i < KEYS; i++) {
                    float w = __shfl_sync(0xffffffffu, weight[i % 2], h * 4 + (key0 + i) / 2);
#pragma unroll
                    for (int e = 0; e < E; e++)
                        out[h][e] = fmaf(w, to_float(((const T *)value[i].word)[e]), out[h][e]);
                }
    }

    __device__ void rescale(float keep, int n_rows)
    {
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (h < n_rows) {
                float kept = __shfl_sync(0xffffffffu, keep, h * 4);
#pragma unroll
                for (int e = 0; e < E; e++)
                    out[h][e] *= kept;
            }
    }

    /* One group; k, v: its first key's. */
    __device__ void add(const attend_scratch<T, HD> *s, const T *k, const T *v, const attend_item &m, int key0,
                        float scale)
    {
        int g = threadIdx.x % 32 / 4;
        const T *query = g < m.n_rows ? s->query[g] : nullptr;
        attend_bits<E> value[KEYS];
        float score[4] = {}, weight[2];
        if (KEYS == ATTEND_KEYS) /* on their way together with the keys */
            load_values(value, v, m, key0);
#pragma unroll 1
        for (int c = 0; c < HD / 32; c += CHUNKS)
            score_keys(score, query, k, c);
        rescale(weigh(weight, score, m, key0, scale), m.n_rows);
#pragma unroll 1
        for (int i = 0; i < ATTEND_KEYS; i += KEYS) {
            if (KEYS < ATTEND_KEYS)
                load_values(value, v + i * HD, m, key0 + i);
            accumulate(value, weight, i, m.n_rows);
        }
    }

    /* To the scratch, for the other warps. */
    __device__ void store(attend_scratch<T, HD> *s, int n_rows)
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0)
            s->sums[warp][lane / 4] = make_float2(best, sum);
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (h < n_rows)
#pragma unroll
                for (int e = 0; e < E; e++)
                    s->out[(warp * n_rows + h) * HD + lane * E + e] = out[h][e];
    }
};

__device__ static inline unsigned long long *attended_word(const chain_args &a, const attend_item &m, int row, int d)
{
    return a.attended + (((size_t)m.t * a.n_heads + m.head0 + row) * a.head_dim + d) / 2;
}

/* The warps' sums become the item's result, or the part's words. */
template <typename T, int HD>
__device__ static inline void attend_finish(attend_scratch<T, HD> *s, const chain_args &a, const attend_item &m,
                                            uint32_t epoch)
{
    for (int i = threadIdx.x; i < m.n_rows * HD / 2; i += CHAIN_THREADS) {
        int row = i / (HD / 2), d = i % (HD / 2) * 2;
        float best = -INFINITY, sum = 0, out[2] = {0, 0};
        /* A warp without groups has stored numbers that change nothing, so all are read at once. */
#pragma unroll
        for (int v = 0; v < CHAIN_WARPS; v++)
            best = fmaxf(best, s->sums[v][row].x);
#pragma unroll
        for (int v = 0; v < CHAIN_WARPS; v++) {
            float2 part = s->sums[v][row];
            float2 x = *(const float2 *)&s->out[(v * m.n_rows + row) * HD + d];
            float scale = part.x == -INFINITY ? 0.0f : attend_exp2(part.x - best);
            sum = fmaf(part.y, scale, sum);
            out[0] = fmaf(x.x, scale, out[0]);
            out[1] = fmaf(x.y, scale, out[1]);
        }
        if (m.n_parts > 1) {
            size_t at = (size_t)m.index * ATTEND_HEADS + row;
            word_publish2<false>(a.parts + at * HD + d, word_float(out[0], epoch), word_float(out[1], epoch));
            if (d == 0)
                word_publish2<false>(a.part_sums + at * 2, word_float(best, epoch), word_float(sum, epoch));
        } else {
            float inverse = sum > 0 ? 1.0f / sum : 0.0f;
            word_publish(attended_word(a, m, row, d), word_pair<T>(out[0] * inverse, out[1] * inverse, epoch));
        }
    }
}

/* This part's share of the result, out of all parts' words; 16 lanes for a pair of elements, a lane for a part. */
template <typename T, int HD>
__device__ static inline void attend_join(const chain_args &a, const attend_item &m, uint32_t epoch)
{
    int pairs = m.n_rows * HD / 2, share = (pairs + m.n_parts - 1) / m.n_parts;
    int begin = m.part * share, end = min(begin + share, pairs), lane = threadIdx.x % CHAIN_PARTS;
    for (int first = begin + threadIdx.x / 32 * 2; first < end; first += CHAIN_WARPS * 2) {
        int i = first + threadIdx.x % 32 / CHAIN_PARTS, row = i / (HD / 2), d = i % (HD / 2) * 2;
        bool mine = i < end && lane < m.n_parts;
        size_t at = (size_t)(m.index - m.part + lane) * ATTEND_HEADS + row;
        ulonglong2 v[2];
        word_await<false>(
            v, [&](int k) { return !mine    ? nullptr
                                   : k == 0 ? a.parts + at * HD + d
                                            : a.part_sums + at * 2; }, epoch);
        float best = mine ? word_value(v[1].x) : -INFINITY, top = best;
#pragma unroll
        for (int k = CHAIN_PARTS / 2; k > 0; k /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, k));
        float scale = best == -INFINITY ? 0.0f : attend_exp2(best - top);
        float sum = word_value(v[1].y) * scale, x = word_value(v[0].x) * scale, y = word_value(v[0].y) * scale;
#pragma unroll
        for (int k = CHAIN_PARTS / 2; k > 0; k /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, k);
            x += __shfl_xor_sync(0xffffffffu, x, k);
            y += __shfl_xor_sync(0xffffffffu, y, k);
        }
        float inverse = sum > 0 ? 1.0f / sum : 0.0f;
        if (mine && lane == 0)
            word_publish(attended_word(a, m, row, d), word_pair<T>(x * inverse, y * inverse, epoch));
    }
}

template <typename T, int HD>
__device__ static inline void attend_part(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                          const attend_item &m, uint32_t epoch)
{
    attend_scratch<T, HD> *s = sh.at<attend_scratch<T, HD>>(a.at.input);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, ids = m.group_block(lane);
    attend_prefetch<HD>(a, layer, m, ids);
    attend_inputs<T, HD>(s, a, sh, layer, m, epoch);
    chain_sync();
    attend_sums<T, HD> sums;
    sums.clear();
    for (int group = m.begin + warp, i = 0; group < m.end; group += CHAIN_WARPS, i++) {
        if (i > 0 && i % 32 == 0)
            ids = m.group_block(i + lane);
        int block = __shfl_sync(0xffffffffu, ids, i % 32);
        if (block < 0)
            continue;
        size_t at = m.group_at(a, block, group);
        sums.add(s, (const T *)layer.k_cache + at, (const T *)layer.v_cache + at, m, group * ATTEND_KEYS, layer.scale);
    }
    sums.store(s, m.n_rows);
    chain_sync();
    attend_finish<T, HD>(s, a, m, epoch);
    if (m.n_parts > 1)
        attend_join<T, HD>(a, m, epoch);
    chain_sync(); /* the scratch is the next input's place */
}

/* Where no sequence is divided, and items are few: the blocks that have none, numbered; -1: this one has. n_free: how many
 * there are; 0: it is otherwise. */
__device__ static inline int attend_free(const chain_args &a, const chain_shared &sh, int *n_free)
{
    int n_items = a.n_tokens * a.n_kv_heads * attend_head_parts(a.group, a.head_dim), n = (int)gridDim.x;
    int parts = attend_parts(n_items, n), block = (int)blockIdx.x;
    const int *pos = sh.at<int>(a.at.tokens) + 2 * a.n_tokens;
    bool whole = n_items <= n / 4;
    for (int t = 0; t < a.n_tokens; t++)
        whole = whole && pos[t] / ATTEND_KEYS < MIN_GROUPS;
    *n_free = whole ? n - n_items : 0;
    bool busy = block % parts == 0 && block / parts < n_items;
    return busy ? -1 : block - min((block + parts - 1) / parts, n_items);
}

/* All that this block has to do for a layer's attention. */
template <typename T>
__device__ static inline void chain_attention(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                              uint32_t epoch)
{
    int n_items = a.n_tokens * a.n_kv_heads * attend_head_parts(a.group, a.head_dim),
        parts = attend_parts(n_items, (int)gridDim.x);
    for (int i = (int)blockIdx.x; i < n_items * parts; i += (int)gridDim.x) {
        attend_item m;
        if (!m.open(a, sh, layer, i, parts))
            continue;
        if (a.head_dim == 64)
            attend_part<T, 64>(a, sh, layer, m, epoch);
        else if (a.head_dim == 128)
            attend_part<T, 128>(a, sh, layer, m, epoch);
        else
            attend_part<T, 256>(a, sh, layer, m, epoch);
    }
}

#endif
