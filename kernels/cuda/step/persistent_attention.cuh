/* kernels/cuda/step/persistent_attention.cuh - attention within the persistent kernel, item by item: the queries, and
 * the token's own key and value to the cache (persistent_attention_item.cuh); warps take octets of keys in turn
 * (persistent_attention_sums.cuh, persistent_attention_codes.cuh); their sums become the item's result. Up to
 * CHAIN_PARTS blocks split a long sequence, depending on the number of items only; its parts exchange their sums as
 * words, and each adds up its share of the result. */
#ifndef STEP_PERSISTENT_ATTENTION_CUH
#define STEP_PERSISTENT_ATTENTION_CUH

#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/step/persistent_attention_keys.cuh"

/* Four neighbouring elements d .. of a head, rotated. x: the head [HD], in shared memory; cos_sin: the token's. The
 * rotated size is a multiple of 8 elements, so that the pairs' other four elements are neighbours, too. */
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

/* cos_sin of token t in this layer. */
__device__ static inline const float *attend_angles(const chain_args &a, const chain_shared &sh,
                                                    const chain_layer &layer, int t)
{
    bool windowed = CHAIN_OUTPUTS && a.window_cos_sin != nullptr && layer.window > 0;
    return sh.at<float>(a.at.cos_sin) + (t + (windowed ? a.n_tokens : 0)) * a.rope_dims;
}

/* Four elements of a head times its 1 / root mean square, and the norm's weights. */
template <typename T>
__device__ static inline float4 attend_normed(const chain_args &a, float4 e, float inverse, uint2 scale)
{
    float2 low = tensor_unpack<T>(scale.x), high = tensor_unpack<T>(scale.y);
    if (CHAIN_OUTPUTS && a.norm == NORM_RMS_OFFSET)
        return make_float4(rounded<T>((1 + low.x) * (e.x * inverse)), rounded<T>((1 + low.y) * (e.y * inverse)),
                           rounded<T>((1 + high.x) * (e.z * inverse)), rounded<T>((1 + high.y) * (e.w * inverse)));
    return make_float4(low.x * rounded<T>(e.x * inverse), low.y * rounded<T>(e.y * inverse),
                       high.x * rounded<T>(e.z * inverse), high.y * rounded<T>(e.w * inverse));
}

/* One warp reads the words of a head of token t, normalises and rotates it through `x` (float [HD], shared). which: 0
 * q, 1 k, 2 v. All lanes call store(d, elements d .. d + 3); those with d >= HD have no elements. */
template <typename T, int HD, typename F>
__device__ static inline void attend_vector(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                            int t, int head, int which, float *x, uint32_t epoch, F store)
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
    const unsigned long long *words = a.qkv + ((size_t)t * row + (size_t)head * HD) / 2;
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
        for (int i = 0; i < N; i++)
            e[i] = attend_normed<T>(a, e[i], inverse, scale[i]);
    }
    if (which < 2 && a.rope_dims > 0) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if ((lane + i * 32) * 4 < HD)
                *(float4 *)(x + (lane + i * 32) * 4) = e[i];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = attend_rotate(a, attend_angles(a, sh, layer, t), x, e[i], (lane + i * 32) * 4);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        store((lane + i * 32) * 4, e[i]);
}

/* The power of two that brings a query's largest element to [1, 2), so that it fits into f16; *back: the factor that
 * undoes this. e: of this lane */
__device__ static inline float attend_range(float4 e, float *back)
{
    float most = fmaxf(fmaxf(fabsf(e.x), fabsf(e.y)), fmaxf(fabsf(e.z), fabsf(e.w)));
#pragma unroll
    for (int k = 16; k > 0; k /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, k));
    uint32_t exponent = min(max(__float_as_uint(most) >> 23, 1u), 253u);
    *back = __uint_as_float(exponent << 23);
    return __uint_as_float((254 - exponent) << 23);
}

/* Stores the query of the item's head `row` to the scratch, with the middle pairs of every 8 elements swapped, as the
 * scores expect. CODES: f16, scaled into range. */
template <typename T, int HD, bool CODES>
__device__ static inline void attend_query(attend_scratch<HD> *s, const chain_args &a, const chain_shared &sh,
                                           const chain_layer &layer, const attend_item &m, int row, uint32_t epoch)
{
    using number = typename std::conditional<CODES, __half, T>::type;
    attend_vector<T, HD>(a, sh, layer, m.t, m.head0 + row, 0, s->vector[row], epoch, [&](int d, float4 e) {
        if (CODES) {
            float factor = attend_range(d < HD ? e : make_float4(0, 0, 0, 0), &s->factor[row]);
            e = make_float4(e.x * factor, e.y * factor, e.z * factor, e.w * factor);
        }
        if (d >= HD)
            return;
        uint32_t *pair = (uint32_t *)(s->query[row] + d / 8 * 8) + d / 4 % 2;
        pair[0] = tensor_pack<number>(e.x, e.y);
        pair[2] = tensor_pack<number>(e.z, e.w);
    });
}

/* The codes nearest to four elements divided by their scale. */
__device__ static inline uint32_t attend_encode(float4 e, float scale)
{
    uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(e.x / scale, e.y / scale), __NV_SATFINITE, __NV_E4M3);
    uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(e.z / scale, e.w / scale), __NV_SATFINITE, __NV_E4M3);
    return low | high << 16;
}

/* The scale of a KV head's keys (0) or values (1); 1 where the cache is not quantised. */
template <bool CODES>
__device__ static inline float attend_scale(const chain_args &a, const chain_layer &layer, int which, int kv)
{
    return CODES ? layer.kv_scales[which * a.n_kv_heads + kv] : 1.0f;
}

/* Four elements as numbers of T. */
template <typename T>
__device__ static inline uint2 attend_pack(float4 e)
{
    return make_uint2(tensor_pack<T>(e.x, e.y), tensor_pack<T>(e.z, e.w));
}

/* Stores the key (which: 0) or the value (1) of token t at pos to the cache, if it has a block; KEYS: to x, too.
 * x: as attend_vector's */
template <typename T, int HD, bool CODES, bool KEYS>
__device__ static inline void attend_keep(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                          const attend_item &m, int t, int pos, int which, float *x, uint32_t epoch)
{
    using number = typename std::conditional<CODES, uint8_t, T>::type;
    int block = m.last >= m.first ? m.table[pos / KV_BLOCK_TOKENS] : -1;
    number *to = nullptr;
    if (block >= 0)
        to = (number *)(which == 0 ? layer.k_cache : layer.v_cache) +
             (((size_t)block * a.n_kv_heads + m.kv) * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS) * HD;
    const float scale = attend_scale<CODES>(a, layer, which, m.kv);
    attend_vector<T, HD>(a, sh, layer, t, a.n_heads + which * a.n_kv_heads + m.kv, 1 + which, x, epoch,
                         [&](int d, float4 e) {
                             if (KEYS)
                                 __syncwarp(); /* all lanes have rotated */
                             if (d >= HD)
                                 return;
                             if constexpr (CODES) {
                                 uint32_t codes = attend_encode(e, scale);
                                 if (KEYS)
                                     *(uint32_t *)((number *)x + d) = codes;
                                 if (to != nullptr)
                                     *(uint32_t *)(to + d) = codes;
                             } else {
                                 if (KEYS)
                                     *(uint2 *)((number *)x + d) = attend_pack<T>(e);
                                 if (to != nullptr)
                                     *(uint2 *)(to + d) = attend_pack<T>(e);
                             }
                         });
}

/* Stores queries to the scratch; the token's own key and value to the cache, by every block that is going to read them,
 * with KEYS to s->vector, too; the sinks, by the last warp. SEVERAL: also keys and values of the preceding tokens if
 * the step has several consecutive ones of the sequence: two warps per token, in turn. */
template <typename T, int HD, bool CODES, bool SINKS, bool SEVERAL, bool KEYS>
__device__ static inline void attend_inputs(attend_scratch<HD> *s, const chain_args &a, const chain_shared &sh,
                                            const chain_layer &layer, const attend_item &m, const void *sinks,
                                            uint32_t epoch)
{
    static_assert(ATTEND_HEADS + 2 < CHAIN_WARPS, "the last warp has neither query, nor key and value of the token");
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, extra = warp - m.n_rows;
    if (SINKS && warp == CHAIN_WARPS - 1 && lane < m.n_rows)
        s->sink[lane] = sinks != nullptr ? to_float(((const T *)sinks)[m.head0 + lane]) * ATTENTION_LOG2_E : -INFINITY;
    if (warp < m.n_rows) {
        attend_query<T, HD, CODES>(s, a, sh, layer, m, warp, epoch);
    } else if (!SEVERAL) {
        if (extra < 2 && m.part == m.n_parts - 1)
            attend_keep<T, HD, CODES, KEYS>(a, sh, layer, m, m.t, m.pos, extra, s->vector[warp], epoch);
    } else {
        const int turns = (CHAIN_WARPS - m.n_rows) / 2, *tokens = sh.at<int>(a.at.tokens);
        if (extra >= 2 * turns)
            return;
#pragma unroll 1
        for (int t = m.t - extra / 2; t >= 0 && tokens[a.n_tokens + t] == m.slot; t -= turns) {
            int pos = tokens[2 * a.n_tokens + t], octet = pos / ATTEND_KEYS;
            if (octet >= m.begin && octet < m.end) /* s->out holds nothing yet */
                attend_keep<T, HD, CODES, false>(a, sh, layer, m, t, pos, extra % 2, s->out[warp][0], epoch);
            __syncwarp(); /* the next vector uses the same memory */
        }
    }
}

/* Prefetches the keys and values of this warp's first octets to L2 before the queries arrive: as many bytes if
 * quantised as if not. */
template <int HD, bool CODES>
__device__ static inline void attend_prefetch(const chain_args &a, const chain_layer &layer, const attend_item &m,
                                              int ids)
{
    const int BYTES = CODES ? 1 : 2, LINES = ATTEND_KEYS * HD * BYTES / 128;
    for (int i = 0; i < 4 / BYTES; i++) {
        int block = __shfl_sync(0xffffffffu, ids, i);
        if (block < 0)
            continue;
        size_t at = m.octet_at(a, block, m.begin + threadIdx.x / 32 + i * CHAIN_WARPS) * BYTES;
        for (int l = threadIdx.x % 32; l < 2 * LINES; l += 32) {
            const char *cache = (const char *)(l < LINES ? layer.k_cache : layer.v_cache);
            asm volatile("prefetch.global.L2 [%0];" ::"l"(cache + at + l % LINES * 128));
        }
    }
}

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

/* Combines the warps' sums into the item's result, or the part's words. A warp has pairs of elements of one head; each
 * of its lanes holds one warp's share of the head and the weight of that share, and the lanes exchange them by
 * shuffles. */
template <typename T, bool WIDE, int HD, bool SINKS>
__device__ static inline void attend_finish(attend_scratch<HD> *s, const chain_args &a, const attend_item &m,
                                            float value_scale, uint32_t epoch)
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
    /* A warp without octets has stored neutral values, so all are read at once. */
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
        sum += SINKS ? fast_exp2(s->sink[row] - best) : 0.0f;
        float inverse = sum > 0 ? value_scale / sum : 0.0f;
        attend_result<T, WIDE>(a, m, row, d, out[0] * inverse, out[1] * inverse, epoch);
    }
}

/* This part's share of the result, from all parts' words; 16 lanes per pair of elements, one lane per part. */
template <typename T, bool WIDE, int HD, bool SINKS>
__device__ static inline void attend_join(const attend_scratch<HD> *s, const chain_args &a, const attend_item &m,
                                          float value_scale, uint32_t epoch)
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
        sum += SINKS && mine ? fast_exp2(s->sink[row] - top) : 0.0f;
        float inverse = sum > 0 ? value_scale / sum : 0.0f;
        if (mine && lane == 0)
            attend_result<T, WIDE>(a, m, row, d, x * inverse, y * inverse, epoch);
    }
}

/* The warp's sums over all its unquantised octets. ids: blocks of the first 32. */
template <typename T, int HD>
__device__ static inline void attend_numbers(attend_sums<T, HD> &sums, const attend_scratch<HD> *s, const chain_args &a,
                                             const chain_layer &layer, const attend_item &m, int ids)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int octet = m.begin + warp, i = 0; octet < m.end; octet += CHAIN_WARPS, i++) {
        if (i > 0 && i % 32 == 0)
            ids = m.octet_block(i + lane);
        int block = __shfl_sync(0xffffffffu, ids, i % 32);
        if (block < 0)
            continue;
        size_t at = m.octet_at(a, block, octet);
        sums.add(s, (const T *)layer.k_cache + at, (const T *)layer.v_cache + at, m, octet * ATTEND_KEYS, layer.scale,
                 i == 0);
    }
}

/* In persistent_attention_codes.cuh, for kernels with a quantised cache. */
template <int HD>
__device__ __forceinline__ static void attend_codes(attend_sums<__half, HD> &sums, attend_scratch<HD> *s,
                                                    const chain_args &a, const chain_layer &layer, const attend_item &m,
                                                    int ids, float scale);
template <int HD>
struct attend_slot_codes;

/* The ring that brings keys and values, and this block's span of them; no_keys: in kernels without. */
template <int SLOTS>
struct attend_ring {
    static const bool KEYS = true;
    weight_ring<SLOTS> &ring;
    key_span span;
};
struct no_keys {
    static const bool KEYS = false;
};

template <typename T, bool WIDE, int HD, bool CODES, bool SINKS, bool SEVERAL, typename RING>
__device__ static inline void attend_part(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                          attend_item &m, const void *sinks, uint32_t epoch, const RING &ring)
{
    const bool KEYS = RING::KEYS && (CODES ? HD == KEY_HEAD : HD <= KEY_HEAD);
    using number = typename std::conditional<CODES, __half, T>::type;
    using slot = typename std::conditional<CODES, attend_slot_codes<HD>, attend_slot_numbers<T, HD>>::type;
    attend_scratch<HD> *s = sh.at<attend_scratch<HD>>(a.at.input);
    bool streamed = false;
    if constexpr (KEYS)
        streamed = ring.span.any();
    int ids = -1;
    if (!streamed) {
        ids = m.octet_block((int)threadIdx.x % 32);
        attend_prefetch<HD, CODES>(a, layer, m, ids);
    }
    attend_inputs<T, HD, CODES, SINKS, SEVERAL, KEYS>(s, a, sh, layer, m, sinks, epoch);
    chain_sync();
    const float scale = layer.scale * attend_scale<CODES>(a, layer, 0, m.kv);
    if constexpr (KEYS && !WIDE)
        if (streamed)
            ring.ring = attend_slots_apart<slot, number>(ring.ring, s, sh, m, ring.span, scale);
    if constexpr (KEYS && WIDE)
        if (streamed) {
            ring.ring = attend_slots<slot, number>(ring.ring, s, sh, m, ring.span, scale);
            m.reopen(a, sh, layer); /* so that no register keeps it meanwhile */
        }
    if (!streamed) {
        attend_sums<number, HD> sums;
        sums.clear();
        if constexpr (CODES)
            attend_codes<HD>(sums, s, a, layer, m, ids, scale);
        else
            attend_numbers<T, HD>(sums, s, a, layer, m, ids);
        sums.template store<CODES>(s, m.n_rows);
    }
    chain_sync();
    float value_scale = attend_scale<CODES>(a, layer, 1, m.kv);
    attend_finish<T, WIDE, HD, SINKS>(s, a, m, value_scale, epoch);
    if (m.n_parts > 1)
        attend_join<T, WIDE, HD, SINKS>(s, a, m, value_scale, epoch);
    chain_sync(); /* the next input overwrites the scratch */
}

/* If no sequence is divided and items are few: this block's index among the blocks without an item; -1: it has one.
 * n_free: the number of blocks without an item; 0: sequences are divided, or items are many. */
__device__ static inline int attend_free(const chain_args &a, const chain_shared &sh, int *n_free)
{
    int n_items = a.n_tokens * a.n_kv_heads * attend_head_parts(a.heads_per_kv, a.head_dim), n = (int)gridDim.x;
    int parts = attend_parts(n_items, n), block = (int)blockIdx.x;
    const int *pos = sh.at<int>(a.at.tokens) + 2 * a.n_tokens;
    bool whole = n_items <= n / 4;
    for (int t = 0; t < a.n_tokens; t++)
        whole = whole && pos[t] / ATTEND_KEYS < MIN_OCTETS;
    *n_free = whole ? n - n_items : 0;
    bool busy = block % parts == 0 && block / parts < n_items;
    return busy ? -1 : block - min((block + parts - 1) / parts, n_items);
}

/* The kinds of attention, of which a kernel supports one, since each would cost the others instructions and registers:
 * 16-bit keys and values, one token per sequence; quantised keys and values, heads of 64 or 128 elements; either, with
 * any number of tokens per sequence. */
enum attend_kind { ATTEND_NUMBERS, ATTEND_CODES, ATTEND_ANY };

/* This block's part of a layer's attention. sinks: [n_heads] of T, or NULL; not SINKS: there are none. HD: the size of
 * the heads that the kernel supports; 0: 64, 128 and, in kernels without keys in the ring, 256. */
template <typename T, bool WIDE, bool SINKS, attend_kind KIND, int HD = 0, typename RING = no_keys>
__device__ static inline void chain_attention(const chain_args &a, const chain_shared &sh, const chain_layer &layer,
                                              uint32_t epoch, const void *sinks = nullptr, const RING &ring = RING())
{
    const bool MORE = KIND == ATTEND_ANY;
    const attend_shares &shares = *sh.at<attend_shares>(a.at.attend);
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < shares.n; i += (int)gridDim.x) {
        attend_item m;
        if (i == (int)blockIdx.x)
            *(attend_target *)&m = shares.first;
        else
            m.locate(a, sh, i, shares.max_parts);
        if (!m.open(a, layer, i, shares.max_parts))
            continue;
        if constexpr (KIND != ATTEND_NUMBERS) {
            if (KIND == ATTEND_CODES || layer.kv_scales != nullptr) {
                if (a.head_dim == 64)
                    attend_part<T, WIDE, 64, true, SINKS, MORE>(a, sh, layer, m, sinks, epoch, ring);
                else
                    attend_part<T, WIDE, 128, true, SINKS, MORE>(a, sh, layer, m, sinks, epoch, ring);
                continue;
            }
        }
        if constexpr (KIND != ATTEND_CODES) {
            if constexpr (HD > 0)
                attend_part<T, WIDE, HD, false, SINKS, MORE>(a, sh, layer, m, sinks, epoch, ring);
            else if (a.head_dim == 64)
                attend_part<T, WIDE, 64, false, SINKS, MORE>(a, sh, layer, m, sinks, epoch, ring);
            else if (a.head_dim == 128)
                attend_part<T, WIDE, 128, false, SINKS, MORE>(a, sh, layer, m, sinks, epoch, ring);
            else if constexpr (!RING::KEYS)
                attend_part<T, WIDE, 256, false, SINKS, MORE>(a, sh, layer, m, sinks, epoch, ring);
        }
    }
}

#endif
