/* kernels/cuda/step/persistent_latent.cuh - latent attention within the persistent kernel. An item is a token and one
 * of its heads. Its block does all the work between the layer's first products and the second: it stores the token's
 * normalised latent and rotated key to the cache; multiplies the query by the matrix that would expand latents to keys
 * (absorbed form), so that scores use the latents directly; sums up the weighted latents, which are the values, too;
 * and multiplies that sum by the matrix that would expand latents to values. Both matrices are prefetched to L2 long
 * before. Parts of a long sequence exchange their sums after the second matrix, which is linear. */
#ifndef STEP_PERSISTENT_LATENT_CUH
#define STEP_PERSISTENT_LATENT_CUH

#include "kernels/cuda/step/persistent_attention.cuh"
#include "kernels/cuda/step/persistent_latent_tables.cuh"

static_assert(LATENT_RANK == CHAIN_THREADS, "a thread joins one element");
static_assert(LATENT_RANK == CHAIN_WARPS * 32, "a warp has four octets of the first matrix' rows");
static_assert(LATENT_VALUE == CHAIN_WARPS * 8, "a warp has an octet of the second matrix' rows");

/* An item's. Operands of products have the order of elements that latent_pair says. */
template <>
struct attend_scratch<LATENT_CACHED> {
    uint16_t query[1][LATENT_CACHED]; /* in the space of the cached latents */
    uint16_t key_input[LATENT_KEY];   /* the unrotated part of the query */
    uint16_t said[LATENT_RANK];       /* the normalised sum of latents */
    float turned[2][LATENT_TURNED];
    float2 sums[CHAIN_WARPS][ATTEND_HEADS];
    float out[CHAIN_WARPS][1][LATENT_RANK];
};
typedef attend_scratch<LATENT_CACHED> latent_scratch;

/* Values of one head: a lane adds elements 256 c + 8 lane .., 4 keys at a time. */
template <typename T>
struct attend_values<T, LATENT_CACHED> {
    static const int KEYS = 4, CHUNKS = LATENT_RANK / 256;
    float out[CHUNKS][8];

    __device__ void clear()
    {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int e = 0; e < 8; e++)
                out[c][e] = 0;
    }
    __device__ void load(const T *, const attend_item &, int) {}
    __device__ void add_keys(const T *v, const attend_item &m, int key0, const float (&weight)[2], int first)
    {
        uint4 value[KEYS][CHUNKS];
#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            int key = key0 + first + i;
            bool seen = key >= m.first && key <= m.last;
            const uint4 *from = (const uint4 *)(v + (first + i) * LATENT_CACHED) + threadIdx.x % 32;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                value[i][c] = seen ? __ldcg(from + c * 32) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            float w = __shfl_sync(0xffffffffu, weight[i % 2], (first + i) / 2);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                const uint32_t pair[4] = {value[i][c].x, value[i][c].y, value[i][c].z, value[i][c].w};
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float2 x = tensor_unpack<T>(pair[e]);
                    out[c][2 * e] = fmaf(w, x.x, out[c][2 * e]);
                    out[c][2 * e + 1] = fmaf(w, x.y, out[c][2 * e + 1]);
                }
            }
        }
    }
    /* All lanes of the same keys have the same weights: there is one query. */
    __device__ void add(const T *v, const attend_item &m, int key0, const float (&weight)[2])
    {
#pragma unroll 1
        for (int i = 0; i < ATTEND_KEYS; i += KEYS)
            add_keys(v, m, key0, weight, i);
    }
    __device__ void rescale(float keep, int)
    {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int e = 0; e < 8; e++)
                out[c][e] *= keep;
    }
    template <bool>
    __device__ void store(float *to, int) const
    {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int e = 0; e < 8; e += 4)
                *(float4 *)(to + c * 256 + threadIdx.x % 32 * 8 + e) =
                    make_float4(out[c][e], out[c][e + 1], out[c][e + 2], out[c][e + 3]);
    }
};

/* N pieces of 32 columns of an octet of rows, each PITCH elements from the last. */
template <int PITCH, int N, typename T>
__device__ static inline void latent_fetch(uint4 (&w)[N], const T *from)
{
    int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll
    for (int c = 0; c < N; c++)
        w[c] = __ldcg((const uint4 *)(from + g * PITCH + c * 32 + p * 8));
}

/* An octet's products with x, as in attend_sums::score_keys: the result holds those of rows 2 p and 2 p + 1. */
struct latent_dots {
    float first[4] = {}, second[4] = {};

    template <typename T, int N>
    __device__ void add(const uint16_t *x, const uint4 (&w)[N])
    {
#pragma unroll
        for (int c = 0; c < N; c++) {
            uint4 q = *(const uint4 *)(x + c * 32 + threadIdx.x % 4 * 8);
            tensor_mma<T>(first, q.x, q.y, q.z, q.w, w[c].x, w[c].y);
            tensor_mma<T>(second, q.x, q.y, q.z, q.w, w[c].z, w[c].w);
        }
    }
    __device__ float2 pair() const
    {
        return make_float2(first[0] + second[2], first[1] + second[3]);
    }
};

/* The position of pair p of 8 elements such that four registers are an operand without shuffles: see chain_tile. */
__device__ static inline int latent_pair(int p)
{
    return p / 2 + p % 2 * 2;
}

/* Four neighbouring elements d .. as an operand. */
template <typename T>
__device__ static inline void latent_store(uint16_t *operand, int d, uint32_t low, uint32_t high)
{
    uint32_t *pair = (uint32_t *)(operand + d / 8 * 8) + d / 4 % 2;
    pair[0] = low;
    pair[2] = high;
}

/* One warp rotates the LATENT_TURNED elements in these words, through x. store(d, elements d .. d + 3) */
template <typename T, typename F>
__device__ static inline void latent_turn(const expert_args &a, const chain_shared &sh, int t,
                                          const unsigned long long *words, float *x, uint32_t epoch, F store)
{
    int d = threadIdx.x % 32 * 4;
    ulonglong2 v[1];
    word_await(
        v, [=](int) { return d < LATENT_TURNED; }, [=](int) { return words + d / 2; }, epoch);
    float2 low = tensor_unpack<T>((uint32_t)v[0].x), high = tensor_unpack<T>((uint32_t)v[0].y);
    float4 e = make_float4(low.x, low.y, high.x, high.y);
    if (d < LATENT_TURNED)
        *(float4 *)(x + d) = e;
    __syncwarp();
    e = attend_rotate(a, sh.at<float>(a.at.cos_sin) + t * a.rope_dims, x, e, d);
    if (d < LATENT_TURNED)
        store(d, e);
}

/* One warp stores the token's normalised latent to the cache; to NULL: it has no block. */
template <typename T>
__device__ static inline void latent_keep(const expert_args &a, const latent_layer &l, int t, T *to, uint32_t epoch)
{
    const int N = LATENT_RANK / 128;
    int d = threadIdx.x % 32 * 4;
    uint2 scale[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        scale[i] = *(const uint2 *)((const T *)l.norm + d + i * 128);
    const unsigned long long *words = a.latents.words + (t * LATENT_CACHED + d) / 2;
    ulonglong2 v[N];
    word_await(
        v, [](int) { return true; }, [=](int i) { return words + i * 64; }, epoch);
    float square = 0;
    float4 e[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 low = tensor_unpack<T>((uint32_t)v[i].x), high = tensor_unpack<T>((uint32_t)v[i].y);
        e[i] = make_float4(low.x, low.y, high.x, high.y);
        square += e[i].x * e[i].x + e[i].y * e[i].y + e[i].z * e[i].z + e[i].w * e[i].w;
    }
    float inverse = rsqrtf(warp_sum(square) / LATENT_RANK + a.latents.eps);
#pragma unroll
    for (int i = 0; i < N && to != nullptr; i++) {
        uint32_t low = tensor_pack<T>(e[i].x * inverse, e[i].y * inverse),
                 high = tensor_pack<T>(e[i].z * inverse, e[i].w * inverse);
        *(uint2 *)(to + d + i * 128) =
            make_uint2(tensor_multiply<T>(scale[i].x, low), tensor_multiply<T>(scale[i].y, high));
    }
}

/* Stores the query to the scratch unchanged, and the token's latent and key to the cache, by every block that is going
 * to read them. A warp has a part. */
template <typename T>
__device__ static inline void latent_inputs(latent_scratch *s, const expert_args &a, const chain_shared &sh,
                                            const chain_layer &layer, const latent_layer &l, const attend_item &m,
                                            uint32_t epoch)
{
    int warp = threadIdx.x / 32, d = threadIdx.x % 32 * 4;
    const unsigned long long *query = a.qkv + ((size_t)m.t * a.n_heads + m.head0) * (LATENT_QUERY / 2);
    if (warp == 0) {
        ulonglong2 v[1];
        word_await(
            v, [](int) { return true; }, [=](int) { return query + d / 2; }, epoch);
        latent_store<T>(s->key_input, d, (uint32_t)v[0].x, (uint32_t)v[0].y);
    } else if (warp == 1) {
        latent_turn<T>(a, sh, m.t, query + LATENT_KEY / 2, s->turned[0], epoch, [=](int at, float4 e) {
            latent_store<T>(s->query[0], LATENT_RANK + at, tensor_pack<T>(e.x, e.y), tensor_pack<T>(e.z, e.w));
        });
    } else if (warp < 4 && m.part == m.n_parts - 1) {
        int block = m.last >= m.first ? m.table[m.pos / KV_BLOCK_TOKENS] : -1;
        T *to = block < 0
                    ? nullptr
                    : (T *)layer.k_cache + ((size_t)block * KV_BLOCK_TOKENS + m.pos % KV_BLOCK_TOKENS) * LATENT_CACHED;
        if (warp == 2)
            latent_keep<T>(a, l, m.t, to, epoch);
        else
            latent_turn<T>(a, sh, m.t, a.latents.words + (m.t * LATENT_CACHED + LATENT_RANK) / 2, s->turned[1], epoch,
                           [=](int at, float4 e) {
                               if (to != nullptr)
                                   *(uint2 *)(to + LATENT_RANK + at) =
                                       make_uint2(tensor_pack<T>(e.x, e.y), tensor_pack<T>(e.z, e.w));
                           });
    }
}

/* Multiplies the query by the first matrix. w: this warp's first two octets; from: its rows. */
template <typename T>
__device__ static inline void latent_absorb(latent_scratch *s, uint4 (&w)[2][LATENT_KEY / 32], const T *from)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int o = 0; o < 4; o++) {
        latent_dots dots;
        dots.add<T>(s->key_input, w[o % 2]);
        if (o < 2)
            latent_fetch<LATENT_KEY>(w[o % 2], from + (o + 2) * 8 * LATENT_KEY);
        float2 x = dots.pair();
        if (lane / 4 == o)
            ((uint32_t *)(s->query[0] + warp * 32 + o * 8))[latent_pair(lane % 4)] = tensor_pack<T>(x.x, x.y);
    }
}

/* The warp's sums over all its octets of latents. ids: blocks of the first 32. */
template <typename T>
__device__ static inline void latent_keys(attend_sums<T, LATENT_CACHED> &sums, const latent_scratch *s,
                                          const chain_layer &layer, const attend_item &m, int ids)
{
    const int OCTETS = KV_BLOCK_TOKENS / ATTEND_KEYS;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int octet = m.begin + warp, i = 0; octet < m.end; octet += CHAIN_WARPS, i++) {
        if (i > 0 && i % 32 == 0)
            ids = m.octet_block(i + lane);
        int block = __shfl_sync(0xffffffffu, ids, i % 32);
        if (block < 0)
            continue;
        const T *keys =
            (const T *)layer.k_cache + ((size_t)block * KV_BLOCK_TOKENS + octet % OCTETS * ATTEND_KEYS) * LATENT_CACHED;
        sums.add(s, keys, keys, m, octet * ATTEND_KEYS, layer.scale, i == 0);
    }
}

/* Combines the warps' sums into the part's, divided by its sum of weights. Returns its best score, and the sum of its
 * weights. */
template <typename T>
__device__ static inline float2 latent_join(latent_scratch *s)
{
    int d = threadIdx.x, e = d % 8;
    float2 part = s->sums[d % CHAIN_WARPS][0];
    float best = part.x, out = 0;
#pragma unroll
    for (int k = CHAIN_WARPS / 2; k > 0; k /= 2)
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, k));
    float scale = part.x == -INFINITY ? 0.0f : fast_exp2(part.x - best), sum = part.y * scale;
#pragma unroll
    for (int k = CHAIN_WARPS / 2; k > 0; k /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, k);
#pragma unroll
    for (int v = 0; v < CHAIN_WARPS; v++)
        out = fmaf(s->out[v][0][d], __shfl_sync(0xffffffffu, scale, v), out);
    out *= sum > 0 ? 1 / sum : 0.0f;
    *((T *)s->said + d / 8 * 8 + latent_pair(e / 2) * 2 + e % 2) = from_float<T>(out);
    return make_float2(best, sum);
}

/* Multiplies the part's sum by the second matrix: the item's result, or the part's words. w: half of this warp's octet
 * of rows; from: its rows; whole: of latent_join. */
template <typename T>
__device__ static inline void latent_result(const latent_scratch *s, const expert_args &a, const attend_item &m,
                                            uint4 (&w)[LATENT_RANK / 64], const T *from, float2 whole, uint32_t epoch)
{
    int lane = threadIdx.x % 32, d = (int)threadIdx.x / 32 * 8 + lane * 2;
    latent_dots dots;
    dots.add<T>(s->said, w);
    latent_fetch<LATENT_RANK>(w, from + LATENT_RANK / 2);
    dots.add<T>(s->said + LATENT_RANK / 2, w);
    float2 x = dots.pair();
    if (m.n_parts == 1) {
        if (lane < 4)
            attend_result<T, false>(a, m, 0, d, x.x, x.y, epoch);
        return;
    }
    size_t at = (size_t)m.index * ATTEND_HEADS;
    if (lane < 4)
        word_publish2<false>(a.parts + at * LATENT_VALUE + d, word_float(x.x * whole.y, epoch),
                             word_float(x.y * whole.y, epoch));
    if (threadIdx.x == 0)
        word_publish2<false>(a.part_sums + at * 2, word_float(whole.x, epoch), word_float(whole.y, epoch));
    attend_join<T, false, LATENT_VALUE, false>(nullptr, a, m, 1.0f, epoch);
}

/* Prefetches the latents of this warp's first two octets to L2 before the query arrives. */
__device__ static inline void latent_prefetch(const chain_layer &layer, const attend_item &m, int ids)
{
    const int OCTETS = KV_BLOCK_TOKENS / ATTEND_KEYS, BYTES = ATTEND_KEYS * LATENT_CACHED * 2;
    for (int i = 0; i < 2; i++) {
        int block = __shfl_sync(0xffffffffu, ids, i), octet = m.begin + (int)threadIdx.x / 32 + i * CHAIN_WARPS;
        if (block >= 0 && threadIdx.x % 32 == 0)
            bulk_prefetch((const char *)layer.k_cache + ((size_t)block * OCTETS + octet % OCTETS) * BYTES, BYTES);
    }
}

template <typename T>
__device__ static inline void latent_part(const expert_args &a, const chain_shared &sh, const chain_layer &layer,
                                          const latent_layer &l, const attend_item &m, uint32_t epoch)
{
    latent_scratch *s = sh.at<latent_scratch>(a.at.input);
    int ids = m.octet_block((int)threadIdx.x % 32), warp = threadIdx.x / 32;
    const T *key_up = (const T *)l.key_up + ((size_t)m.head0 * LATENT_RANK + warp * 32) * LATENT_KEY;
    const T *value_up = (const T *)l.value_up + ((size_t)m.head0 * LATENT_VALUE + warp * 8) * LATENT_RANK;
    uint4 first[2][LATENT_KEY / 32], second[LATENT_RANK / 64];
    latent_prefetch(layer, m, ids);
#pragma unroll
    for (int i = 0; i < 2; i++)
        latent_fetch<LATENT_KEY>(first[i], key_up + i * 8 * LATENT_KEY);
    latent_inputs<T>(s, a, sh, layer, l, m, epoch);
    chain_sync();
    latent_absorb<T>(s, first, key_up);
    chain_sync();
    attend_sums<T, LATENT_CACHED> sums;
    sums.clear();
    latent_keys<T>(sums, s, layer, m, ids);
    sums.template store<false>(s, 1);
    latent_fetch<LATENT_RANK>(second, value_up);
    chain_sync();
    float2 whole = latent_join<T>(s);
    chain_sync();
    latent_result<T>(s, a, m, second, value_up, whole, epoch);
    chain_sync(); /* the next input overwrites the scratch */
}

/* This block's part of a layer's attention. */
template <typename T>
__device__ static inline void latent_attention(const expert_args &a, const chain_shared &sh, const chain_layer &layer,
                                               const latent_layer &l, uint32_t epoch)
{
    const attend_shares &shares = *sh.at<attend_shares>(a.at.attend);
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < shares.n; i += (int)gridDim.x) {
        attend_item m;
        if (i == (int)blockIdx.x)
            *(attend_target *)&m = shares.first;
        else
            m.locate(a, sh, i, shares.max_parts);
        if (m.open(a, layer, i, shares.max_parts))
            latent_part<T>(a, sh, layer, l, m, epoch);
    }
}

#endif
