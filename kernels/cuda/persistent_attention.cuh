/* kernels/cuda/persistent_attention.cuh - attention within the persistent kernel. An item is one token and one KV head with
 * some of the query heads that read it. A long sequence's keys are divided among up to CHAIN_PARTS blocks, in a way that
 * depends on their number only; the parts exchange their sums as words and each adds its share of the result. Within a
 * block the warps take groups of 8 keys in turn: scores on the tensor cores, with the keys as the narrow operand straight
 * from the cache; values there, too, with the heads as the narrow operand (heads of 256 elements: by hand). */
#ifndef KERNELS_CUDA_PERSISTENT_ATTENTION_CUH
#define KERNELS_CUDA_PERSISTENT_ATTENTION_CUH

#include "kernels/cuda/persistent_results.cuh"

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
    float out[CHAIN_WARPS][attend_heads(HD)][HD];
};

/* Bytes of the scratch, the same for both types of 16 bits. */
static inline int attend_scratch_bytes(int head_dim)
{
    return head_dim == 64    ? (int)sizeof(attend_scratch<__half, 64>)
           : head_dim == 128 ? (int)sizeof(attend_scratch<__half, 128>)
                             : (int)sizeof(attend_scratch<__half, 256>);
}

/* Which token, heads and part item i is. The same in all layers of a step; many divisions, so a block's first one is kept. */
struct attend_place {
    int t, kv, head0, n_rows; /* query heads [head0, head0 + n_rows) */
    int part, slot, pos;

    __device__ void locate(const chain_args &a, const chain_shared &sh, int i, int max_parts)
    {
        const int *tokens = sh.at<int>(a.at.tokens);
        int head_parts = attend_head_parts(a.group, a.head_dim), heads = attend_heads(a.head_dim);
        part = i % max_parts;
        i /= max_parts;
        t = i / head_parts / a.n_kv_heads;
        kv = i / head_parts % a.n_kv_heads;
        int from = (a.first_kv_head + kv) * a.group - a.first_head;
        head0 = max(from, 0) + i % head_parts * heads;
        n_rows = min(head0 + heads, min(from + a.group, a.n_heads)) - head0;
        slot = tokens[a.n_tokens + t];
        pos = tokens[2 * a.n_tokens + t];
    }
};

/* What a step's attention is divided into, in shared memory. */
struct attend_plan {
    int n, max_parts;   /* items times parts; parts of each */
    attend_place first; /* this block's, if it has any */

    __device__ void make(const chain_args &a, const chain_shared &sh)
    {
        int n_items = a.n_tokens * a.n_kv_heads * attend_head_parts(a.group, a.head_dim);
        max_parts = attend_parts(n_items, (int)gridDim.x);
        n = n_items * max_parts;
        if ((int)blockIdx.x < n)
            first.locate(a, sh, (int)blockIdx.x, max_parts);
    }
};

/* An item's part: groups [begin, end) of 8 keys. */
struct attend_item : attend_place {
    int index, n_parts; /* index: of the part among all, where its words lie */
    int first, last;    /* positions seen; last < first: none */
    int begin, end;
    const int32_t *table;

    /* false: there is nothing to do */
    __device__ bool open(const chain_args &a, const chain_layer &layer, int i, int max_parts)
    {
        index = i;
        bool valid = slot >= 0 && pos >= 0 && pos / KV_BLOCK_TOKENS < a.blocks_per_slot;
        first = layer.window > 0 && pos >= layer.window ? pos - layer.window + 1 : 0;
        last = valid ? pos : -1;
        table = a.block_table + (ptrdiff_t)slot * a.blocks_per_slot;
        begin = valid ? first / ATTEND_KEYS : 0;
        end = valid ? last / ATTEND_KEYS + 1 : 0;
        int n = end - begin;
        n_parts = 1;
        if (n > MIN_GROUPS) {
            n_parts = min(max_parts, (n + PART_GROUPS - 1) / PART_GROUPS);
            int length = (n + n_parts - 1) / n_parts;
            begin += part * length;
            end = min(begin + length, end);
        }
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

/* Four neighbouring elements d .. of a head, rotated. x: the head [HD], in shared memory; cos_sin: the token's. The rotation has
 * multiples of 8 elements, so that a pair's other four are neighbours, too. */
__device__ static inline float4 attend_rotate(const chain_args &a, const float *cos_sin, const float *x, float4 e,
                                              int d)
{
    int pairs = a.rope_dims / 2;
    const float *sine = cos_sin + pairs;
    if (d >= a.rope_dims)
        return e;
    if (!a.rope_half) {
        float2 c = *(const float2 *)(cos_sin + d / 2), s = *(const float2 *)(sine + d / 2);
        return make_float4(e.x * c.x - e.y * s.x, e.y * c.x + e.x * s.x, e.z * c.y - e.w * s.y, e.w * c.y + e.z * s.y);
    }
    bool low = d < pairs;
    int j = low ? d : d - pairs;
    float4 c = *(const float4 *)(cos_sin + j), s = *(const float4 *)(sine + j);
    float4 other = *(const float4 *)(x + (low ? d + pairs : j));
    float sign = low ? -1.0f : 1.0f;
    return make_float4(e.x * c.x + sign * (other.x * s.x), e.y * c.y + sign * (other.y * s.y),
                       e.z * c.z + sign * (other.z * s.z), e.w * c.w + sign * (other.w * s.w));
}

/* One warp: a head's words, their norm and rotation, by way of `x` (float [HD], shared). which: 0 q, 1 k, 2 v. to: NULL: nowhere.
 * Of every 8 elements of a query the middle pairs change places, as score_keys has them. */
template <typename T, int HD>
__device__ static inline void attend_vector(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                            const attend_item &m, int head, int which, float *x, T *to, uint32_t epoch)
{
    const int N = HD > 128 ? HD / 128 : 1;
    int lane = threadIdx.x % 32;
    const T *norm = (const T *)(which == 0 ? layer.q_norm : which == 1 ? layer.k_norm : nullptr);
    uint2 scale[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        if (norm != nullptr && (lane + i * 32) * 4 < HD)
            scale[i] = *(const uint2 *)(norm + (lane + i * 32) * 4);
    size_t row = ((size_t)a.n_heads + 2 * (size_t)a.n_kv_heads) * HD;
    const unsigned long long *words = a.qkv + ((size_t)m.t * row + (size_t)head * HD) / 2;
    ulonglong2 v[N];
    word_await(
        v, [&](int i) { return (lane + i * 32) * 4 < HD; }, [&](int i) { return words + (lane + i * 32) * 2; }, epoch);
    float4 e[N];
    float square = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 low = tensor_unpack<T>((uint32_t)v[i].x), high = tensor_unpack<T>((uint32_t)v[i].y);
        e[i] = make_float4(low.x, low.y, high.x, high.y);
        square += e[i].x * e[i].x + e[i].y * e[i].y + e[i].z * e[i].z + e[i].w * e[i].w;
    }
    if (norm != nullptr) {
        float inverse = rsqrtf(warp_sum(square) / HD + a.eps);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float2 low = tensor_unpack<T>(scale[i].x), high = tensor_unpack<T>(scale[i].y);
            e[i] = make_float4(low.x * rounded<T>(e[i].x * inverse), low.y * rounded<T>(e[i].y * inverse),
                               high.x * rounded<T>(e[i].z * inverse), high.y * rounded<T>(e[i].w * inverse));
        }
    }
    if (which < 2 && a.rope_dims > 0) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if ((lane + i * 32) * 4 < HD)
                *(float4 *)(x + (lane + i * 32) * 4) = e[i];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = attend_rotate(a, sh.at<float>(a.at.cos_sin) + m.t * a.rope_dims, x, e[i], (lane + i * 32) * 4);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        int d = (lane + i * 32) * 4;
        if (to == nullptr || d >= HD)
            continue;
        uint2 bits = make_uint2(tensor_pack<T>(e[i].x, e[i].y), tensor_pack<T>(e[i].z, e[i].w));
        if (which > 0) {
            *(uint2 *)(to + d) = bits;
        } else {
            uint32_t *pair = (uint32_t *)(to + d / 8 * 8) + d / 4 % 2;
            pair[0] = bits.x;
            pair[2] = bits.y;
        }
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

/* A warp's sums of values over its groups, and the values of the group under way; g = lane / 4, p = lane % 4. On the tensor
 * cores, the heads as the narrow side: lane (g, p) has elements 8 (8 i + g) .. of heads 2 p and 2 p + 1, and brings those
 * elements of keys 2 p and 2 p + 1. A weight is two numbers of T, rounded and what is left of it. */
template <typename T, int HD>
struct attend_values {
    static const int CHUNKS = HD / 64;
    float out[4 * CHUNKS][4]; /* [..][2 e + h]: e of two neighbouring elements, h of the two heads */
    uint4 value[2][CHUNKS];   /* 8 elements each */

    __device__ void clear()
    {
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; i++)
            out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
    }
    /* v: the group's first key's, which is key0. What lies at keys that are not seen must not meet their weight of 0. */
    __device__ void load(const T *v, const attend_item &m, int key0)
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            bool seen = key0 + 2 * p + k >= m.first && key0 + 2 * p + k <= m.last;
#pragma unroll
            for (int i = 0; i < CHUNKS; i++)
                value[k][i] =
                    seen ? __ldcg((const uint4 *)(v + (2 * p + k) * HD + (8 * i + g) * 8)) : make_uint4(0, 0, 0, 0);
        }
    }
    /* weight: of head g and keys 2 p, 2 p + 1. */
    __device__ void add(const T *, const attend_item &, int, const float (&weight)[2])
    {
        uint32_t w = tensor_pack<T>(weight[0], weight[1]);
        float2 nearest = tensor_unpack<T>(w);
        uint32_t left = tensor_pack<T>(weight[0] - nearest.x, weight[1] - nearest.y);
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            const uint32_t even[4] = {value[0][i].x, value[0][i].y, value[0][i].z, value[0][i].w},
                           odd[4] = {value[1][i].x, value[1][i].y, value[1][i].z, value[1][i].w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t a0 = __byte_perm(even[e], odd[e], 0x5410), a1 = __byte_perm(even[e], odd[e], 0x7632);
                tensor_mma_narrow<T>(out[4 * i + e], a0, a1, w);
                tensor_mma_narrow<T>(out[4 * i + e], a0, a1, left);
            }
        }
    }
    /* keep: of head g. */
    __device__ void rescale(float keep, int)
    {
        const float kept[2] = {__shfl_sync(0xffffffffu, keep, threadIdx.x % 4 * 8),
                               __shfl_sync(0xffffffffu, keep, threadIdx.x % 4 * 8 + 4)};
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; i++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                out[i][k] *= kept[k % 2];
    }
    /* to: [n_rows][HD] */
    __device__ void store(float *to, int n_rows) const
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 2 * CHUNKS; i++)
                if (2 * p + h < n_rows)
                    *(float4 *)(to + (2 * p + h) * HD + (8 * (i / 2) + g) * 8 + i % 2 * 4) =
                        make_float4(out[2 * i][h], out[2 * i][2 + h], out[2 * i + 1][h], out[2 * i + 1][2 + h]);
    }
};

/* Heads of 256 elements have too many sums for that: by hand, lane l elements 8 l .. of up to two heads, four keys at once. */
template <typename T>
struct attend_values<T, 256> {
    static const int KEYS = 4;
    float out[attend_heads(256)][8];

    __device__ void clear()
    {
#pragma unroll
        for (int h = 0; h < attend_heads(256); h++)
#pragma unroll
            for (int e = 0; e < 8; e++)
                out[h][e] = 0;
    }
    __device__ void load(const T *, const attend_item &, int) {}
    __device__ void add_keys(const T *v, const attend_item &m, int key0, const float (&weight)[2], int first)
    {
        uint4 value[KEYS];
#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            int key = key0 + first + i;
            value[i] = key >= m.first && key <= m.last
                           ? __ldcg((const uint4 *)(v + (first + i) * 256 + threadIdx.x % 32 * 8))
                           : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int h = 0; h < attend_heads(256); h++)
            if (h < m.n_rows)
#pragma unroll
                for (int i = 0; i < KEYS; i++) {
                    float w = __shfl_sync(0xffffffffu, weight[i % 2], h * 4 + (first + i) / 2);
                    const uint32_t pair[4] = {value[i].x, value[i].y, value[i].z, value[i].w};
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float2 x = tensor_unpack<T>(pair[e]);
                        out[h][2 * e] = fmaf(w, x.x, out[h][2 * e]);
                        out[h][2 * e + 1] = fmaf(w, x.y, out[h][2 * e + 1]);
                    }
                }
    }
    __device__ void add(const T *v, const attend_item &m, int key0, const float (&weight)[2])
    {
#pragma unroll 1
        for (int i = 0; i < ATTEND_KEYS; i += KEYS)
            add_keys(v, m, key0, weight, i);
    }
    __device__ void rescale(float keep, int n_rows)
    {
#pragma unroll
        for (int h = 0; h < attend_heads(256); h++)
            if (h < n_rows) {
                float kept = __shfl_sync(0xffffffffu, keep, h * 4);
#pragma unroll
                for (int e = 0; e < 8; e++)
                    out[h][e] *= kept;
            }
    }
    __device__ void store(float *to, int n_rows) const
    {
#pragma unroll
        for (int h = 0; h < attend_heads(256); h++)
#pragma unroll
            for (int e = 0; e < 8; e += 4)
                if (h < n_rows)
                    *(float4 *)(to + h * 256 + threadIdx.x % 32 * 8 + e) =
                        make_float4(out[h][e], out[h][e + 1], out[h][e + 2], out[h][e + 3]);
    }
};

/* A warp's sums over its groups. Lane (g, p) knows best score and sum of weights of query head g, the sum over its own keys
 * only. Lanes of heads that the item does not have know somebody else's, which nobody reads. */
template <typename T, int HD>
struct attend_sums {
    static const int CHUNKS = HD > 128 ? HD / 64 : HD / 32; /* of a key's 32 elements, at once */
    float best, sum;
    attend_values<T, HD> values;

    __device__ void clear()
    {
        best = -INFINITY;
        sum = 0;
        values.clear();
    }

    /* score += q.k over CHUNKS times 32 elements from column c0 on. As in chain_tile the query's registers are an operand as
     * they come (attend_vector), and half of each result is right. */
    __device__ static void score_keys(float (&first)[4], float (&second)[4], const T *query, const T *k, int c0)
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
        uint4 key[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            key[c] = __ldcg((const uint4 *)(k + g * HD + (c0 + c) * 32 + p * 8));
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            uint4 q = *(const uint4 *)(query + (c0 + c) * 32 + p * 8);
            tensor_mma<T>(first, q.x, q.y, q.z, q.w, key[c].x, key[c].y);
            tensor_mma<T>(second, q.x, q.y, q.z, q.w, key[c].z, key[c].w);
        }
    }

    /* Scores to weights, and the sum so far to the new best; returns what the results so far are multiplied with. */
    __device__ float weigh(float (&weight)[2], const attend_item &m, int key0, float scale)
    {
        float top = best;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = key0 + threadIdx.x % 4 * 2 + i;
            weight[i] = at >= m.first && at <= m.last ? weight[i] * scale : -INFINITY;
            top = fmaxf(top, weight[i]);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float base = top == -INFINITY ? 0.0f : top, keep = fast_exp2(best - base);
        best = top;
        sum *= keep;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            weight[i] = fast_exp2(weight[i] - base);
            sum += weight[i];
        }
        return keep;
    }

    /* One group, this warp's first one or another; k, v: its first key's. */
    __device__ void add(const attend_scratch<T, HD> *s, const T *k, const T *v, const attend_item &m, int key0,
                        float scale, bool is_first)
    {
        int g = threadIdx.x % 32 / 4;
        const T *query = s->query[g < m.n_rows ? g : 0];
        float first[4] = {}, second[4] = {};
        values.load(v, m, key0); /* on their way together with the keys */
#pragma unroll 1
        for (int c = 0; c < HD / 32; c += CHUNKS)
            score_keys(first, second, query, k, c);
        float weight[2] = {first[0] + second[2], first[1] + second[3]}, keep = weigh(weight, m, key0, scale);
        if (!is_first)
            values.rescale(keep, m.n_rows);
        values.add(v, m, key0, weight);
    }

    /* To the scratch, for the other warps. */
    __device__ void store(attend_scratch<T, HD> *s, int n_rows)
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0)
            s->sums[warp][lane / 4] = make_float2(best, sum);
        values.store(s->out[warp][0], n_rows);
    }
};

/* Two neighbouring elements of the result, of this item's head `row`. */
template <typename T, bool WIDE>
__device__ static inline void attend_result(const chain_args &a, const attend_item &m, int row, int d, float x, float y,
                                            uint32_t epoch)
{
    size_t at = ((size_t)m.t * a.n_heads + m.head0 + row) * a.head_dim + d;
    if (WIDE)
        wide_store<T>(a, VECTOR_ATTENDED, at, x, y);
    else
        word_publish(a.attended + at / 2, word_pair<T>(x, y, epoch));
}

/* The warps' sums become the item's result, or the part's words. A warp has pairs of elements of one head; its lanes know
 * one warp's share of the head each, what that weighs in the whole, and tell each other. */
template <typename T, bool WIDE, int HD>
__device__ static inline void attend_finish(attend_scratch<T, HD> *s, const chain_args &a, const attend_item &m,
                                            uint32_t epoch)
{
    static_assert(HD % 64 == 0 && CHAIN_WARPS == 16, "a warp's pairs belong to one head; half a warp knows all warps");
    static_assert(attend_heads(HD) * HD / 2 <= CHAIN_THREADS, "a pair a thread");
    int row = threadIdx.x / (HD / 2), d = threadIdx.x % (HD / 2) * 2;
    if (row >= m.n_rows)
        return;
    float2 part = s->sums[threadIdx.x % CHAIN_WARPS][row];
    float best = part.x, out[2] = {0, 0};
#pragma unroll
    for (int k = CHAIN_WARPS / 2; k > 0; k /= 2)
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, k));
    /* A warp without groups has stored numbers that change nothing, so all are read at once. */
    float scale = part.x == -INFINITY ? 0.0f : fast_exp2(part.x - best), sum = part.y * scale;
#pragma unroll
    for (int k = CHAIN_WARPS / 2; k > 0; k /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, k);
#pragma unroll
    for (int v = 0; v < CHAIN_WARPS; v++) {
        float2 x = *(const float2 *)&s->out[v][row][d];
        float weight = __shfl_sync(0xffffffffu, scale, v);
        out[0] = fmaf(x.x, weight, out[0]);
        out[1] = fmaf(x.y, weight, out[1]);
    }
    if (m.n_parts > 1) {
        size_t at = (size_t)m.index * ATTEND_HEADS + row;
        word_publish2<false>(a.parts + at * HD + d, word_float(out[0], epoch), word_float(out[1], epoch));
        if (d == 0)
            word_publish2<false>(a.part_sums + at * 2, word_float(best, epoch), word_float(sum, epoch));
    } else {
        float inverse = sum > 0 ? 1.0f / sum : 0.0f;
        attend_result<T, WIDE>(a, m, row, d, out[0] * inverse, out[1] * inverse, epoch);
    }
}

/* This part's share of the result, out of all parts' words; 16 lanes for a pair of elements, a lane for a part. */
template <typename T, bool WIDE, int HD>
__device__ static inline void attend_join(const chain_args &a, const attend_item &m, uint32_t epoch)
{
    int pairs = m.n_rows * HD / 2, share = (pairs + m.n_parts - 1) / m.n_parts;
    int begin = m.part * share, end = min(begin + share, pairs), lane = threadIdx.x % CHAIN_PARTS;
    for (int first = begin + threadIdx.x / 32 * 2; first < end; first += CHAIN_WARPS * 2) {
        int i = first + threadIdx.x % 32 / CHAIN_PARTS, row = i / (HD / 2), d = i % (HD / 2) * 2;
        bool mine = i < end && lane < m.n_parts;
        size_t at = (size_t)(m.index - m.part + lane) * ATTEND_HEADS + row;
        ulonglong2 v[2];
        word_await(
            v, [&](int) { return mine; }, [&](int k) { return k == 0 ? a.parts + at * HD + d : a.part_sums + at * 2; },
            epoch);
        float best = mine ? word_value(v[1].x) : -INFINITY, top = best;
#pragma unroll
        for (int k = CHAIN_PARTS / 2; k > 0; k /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, k));
        float scale = best == -INFINITY ? 0.0f : fast_exp2(best - top);
        float sum = word_value(v[1].y) * scale, x = word_value(v[0].x) * scale, y = word_value(v[0].y) * scale;
#pragma unroll
        for (int k = CHAIN_PARTS / 2; k > 0; k /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, k);
            x += __shfl_xor_sync(0xffffffffu, x, k);
            y += __shfl_xor_sync(0xffffffffu, y, k);
        }
        float inverse = sum > 0 ? 1.0f / sum : 0.0f;
        if (mine && lane == 0)
            attend_result<T, WIDE>(a, m, row, d, x * inverse, y * inverse, epoch);
    }
}

template <typename T, bool WIDE, int HD>
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
        sums.add(s, (const T *)layer.k_cache + at, (const T *)layer.v_cache + at, m, group * ATTEND_KEYS, layer.scale,
                 i == 0);
    }
    sums.store(s, m.n_rows);
    chain_sync();
    attend_finish<T, WIDE, HD>(s, a, m, epoch);
    if (m.n_parts > 1)
        attend_join<T, WIDE, HD>(a, m, epoch);
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
template <typename T, bool WIDE>
__device__ static inline void chain_attention(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                              uint32_t epoch)
{
    const attend_plan &plan = *sh.at<attend_plan>(a.at.attend);
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < plan.n; i += (int)gridDim.x) {
        attend_item m;
        if (i == (int)blockIdx.x)
            *(attend_place *)&m = plan.first;
        else
            m.locate(a, sh, i, plan.max_parts);
        if (!m.open(a, layer, i, plan.max_parts))
            continue;
        if (a.head_dim == 64)
            attend_part<T, WIDE, 64>(a, sh, layer, m, epoch);
        else if (a.head_dim == 128)
            attend_part<T, WIDE, 128>(a, sh, layer, m, epoch);
        else
            attend_part<T, WIDE, 256>(a, sh, layer, m, epoch);
    }
}

#endif
