/* kernels/cuda/step/persistent_attention_codes.cuh - the persistent kernel's attention over a cache of E4M3 codes. One
 * instruction converts two codes to f16, whatever the type of activations: so the query is f16, too, times a power of
 * two that brings it into range, and so are the weights, which are at most 1. A weight needs no second, residual part
 * here, since a value has only four significant bits. An octet is copied to shared memory, where s->out holds nothing
 * yet: registers would spill, and loads to registers pass through the 28 KiB of L1 that shared memory leaves. As soon
 * as a warp has read its keys, it requests the next octet's, and likewise for values. */
#ifndef STEP_PERSISTENT_ATTENTION_CODES_CUH
#define STEP_PERSISTENT_ATTENTION_CODES_CUH

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/step/persistent_attention.cuh"

/* Converts eight codes to f16. */
__device__ static inline uint4 attend_decode(uint2 codes)
{
    uint32_t low[2], high[2];
    code_pairs<__half, CODES_E4M3>::decode(low, codes.x, 0);
    code_pairs<__half, CODES_E4M3>::decode(high, codes.y, 0);
    return make_uint4(low[0], low[1], high[0], high[1]);
}

/* Offsets of a lane's codes in the keys and values of the warp's octets, the same in all blocks, since a warp has every
 * 16th octet. */
template <int HD>
struct attend_code_place {
    const uint8_t *key, *value; /* in block 0 of the cache */
    int block_bytes;

    __device__ attend_code_place(const chain_args &a, const chain_layer &layer, const attend_item &m)
        : block_bytes(a.n_kv_heads * KV_BLOCK_TOKENS * HD)
    {
        static_assert(CHAIN_WARPS % (KV_BLOCK_TOKENS / ATTEND_KEYS) == 0, "a warp's octets have one place in a block");
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
        size_t at = m.octet_at(a, 0, m.begin + threadIdx.x / 32);
        key = (const uint8_t *)layer.k_cache + at + g * HD + p * 16;
        value = (const uint8_t *)layer.v_cache + at + 2 * p * HD + g * (HD / 8);
    }
};

/* Eight or sixteen codes of a value, as sixteen. */
__device__ static inline uint4 code_words(const uint4 &w)
{
    return w;
}
__device__ static inline uint4 code_words(const uint2 &w)
{
    return make_uint4(w.x, w.y, 0, 0);
}

/* An octet in shared memory, where each lane has slots of its own: for codes 64 c + 16 p .. of key g, and for the
 * eighth g of values 2 p and 2 p + 1. */
template <int HD>
struct attend_code_octet {
    using part = typename std::conditional<HD == 128, uint4, uint2>::type; /* of a value */
    uint4 key[HD / 64][32];
    part value[2][32];

    /* Requests the keys, or the values, of the octet in this block; -1: there is none. */
    __device__ void send_key(const attend_code_place<HD> &from, int block)
    {
        if (block >= 0)
#pragma unroll
            for (int c = 0; c < HD / 64; c++)
                async_copy(&key[c][threadIdx.x % 32], from.key + (ptrdiff_t)block * from.block_bytes + c * 64, true);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    /* Values of masked keys may be NaN: their weight of 0 must not be multiplied by it. */
    __device__ void send_value(const attend_code_place<HD> &from, const attend_item &m, int block, int key0)
    {
        if (block >= 0)
#pragma unroll
            for (int n = 0; n < 2; n++) {
                int pos = key0 + threadIdx.x % 4 * 2 + n;
                bool seen = pos >= m.first && pos <= m.last;
                const uint8_t *w = from.value + (ptrdiff_t)block * from.block_bytes + n * HD;
                if (HD == 128)
                    async_copy(&value[n][threadIdx.x % 32], w, seen);
                else
                    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(
                                     (uint32_t)__cvta_generic_to_shared(&value[n][threadIdx.x % 32])),
                                 "l"(w), "r"(seen ? 8 : 0)
                                 : "memory");
            }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

/* Waits until all copies but those of the last LEFT commits have arrived. */
template <int LEFT>
__device__ static inline void await_copies(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Adds the products of 16 codes of a key with the query's elements. */
__device__ static inline void attend_multiply_key(float (&first)[4], float (&second)[4], const uint4 &codes,
                                                  const __half *query)
{
    const uint2 half[2] = {make_uint2(codes.x, codes.y), make_uint2(codes.z, codes.w)};
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint4 q = *(const uint4 *)(query + k * 8), key = attend_decode(half[k]);
        tensor_mma<__half>(first, q.x, q.y, q.z, q.w, key.x, key.y);
        tensor_mma<__half>(second, q.x, q.y, q.z, q.w, key.z, key.w);
    }
}

/* Weights of this lane's two keys of an octet with first key key0. query: of this lane's head; scale: of that, too. */
template <int HD>
__device__ static inline uint32_t attend_score_codes(attend_sums<__half, HD> &sums, const attend_code_octet<HD> &octet,
                                                     const __half *query, const attend_item &m, int key0, float scale)
{
    float first[4] = {}, second[4] = {};
#pragma unroll
    for (int c = 0; c < HD / 64; c++)
        attend_multiply_key(first, second, octet.key[c][threadIdx.x % 32], query + c * 64 + threadIdx.x % 4 * 16);
    float weight[2] = {first[0] + second[2], first[1] + second[3]};
    attend_reweigh(sums, weight, m, key0, scale);
    return tensor_pack<__half>(weight[0], weight[1]);
}

/* even, odd: this lane's codes of values 2 p and 2 p + 1 */
template <int HD>
__device__ static inline void attend_multiply_codes(attend_sums<__half, HD> &sums, const uint4 &even, const uint4 &odd,
                                                    uint32_t w)
{
    sums.values.template multiply<false>(0, attend_decode(make_uint2(even.x, even.y)),
                                         attend_decode(make_uint2(odd.x, odd.y)), w, 0);
    if constexpr (HD == 128)
        sums.values.template multiply<false>(1, attend_decode(make_uint2(even.z, even.w)),
                                             attend_decode(make_uint2(odd.z, odd.w)), w, 0);
}

/* All octets of this warp. ids: its blocks of the first 32; scale: of the keys' codes, too. */
template <int HD>
__device__ __forceinline__ static void attend_codes(attend_sums<__half, HD> &sums, attend_scratch<HD> *s,
                                                    const chain_args &a, const chain_layer &layer, const attend_item &m,
                                                    int ids, float scale)
{
    static_assert(sizeof s->out[0] >= sizeof(attend_code_octet<HD>), "a warp's octet has room");
    const int STRIDE = CHAIN_WARPS * ATTEND_KEYS, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = lane / 4 < m.n_rows ? lane / 4 : 0, key0 = (m.begin + warp) * ATTEND_KEYS;
    const __half *query = (const __half *)s->query[row];
    const attend_code_place<HD> from(a, layer, m);
    attend_code_octet<HD> &octet = *(attend_code_octet<HD> *)s->out[warp][0];
    scale *= s->factor[row];
    int block = __shfl_sync(0xffffffffu, ids, 0);
    octet.send_key(from, block);
    octet.send_value(from, m, block, key0);
#pragma unroll 1
    for (int i = 1; key0 < m.end * ATTEND_KEYS; i++, key0 += STRIDE) {
        if (i % 32 == 0)
            ids = m.octet_block(i + lane);
        int next = __shfl_sync(0xffffffffu, ids, i % 32);
        uint32_t w = 0;
        await_copies<1>();
        if (block >= 0)
            w = attend_score_codes<HD>(sums, octet, query, m, key0, scale);
        octet.send_key(from, next);
        await_copies<1>();
        if (block >= 0)
            attend_multiply_codes<HD>(sums, code_words(octet.value[0][lane]), code_words(octet.value[1][lane]), w);
        octet.send_value(from, m, next, key0 + STRIDE);
        block = next;
    }
    await_copies<0>();
}

/* How a warp reads its two octets of codes in a slot of the ring, a block of the cache: a row of 128 bytes has the
 * codes of one head. */
template <int HD>
struct attend_slot_codes {
    static const int KEYS = 1, BYTES = HD; /* of an element; of a head */
    static const bool TOGETHER = true;
    const __half *query;
    float scale;
    uint32_t weight[2]; /* of the lane's two keys of each octet */

    __device__ attend_slot_codes(const attend_scratch<HD> *s, int row, float of_scores)
        : query((const __half *)s->query[row]), scale(of_scores * s->factor[row])
    {
    }
    /* Lane p has the codes from 32 p on of key g: the swizzle spreads what lanes read at once over all banks. Both
     * octets' weights are relative to one best score. */
    __device__ void score(attend_sums<__half, HD> &sums, const char *octets, const attend_item &m, int key0)
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
        float both[4];
#pragma unroll
        for (int o = 0; o < 2; o++) {
            float first[4] = {}, second[4] = {};
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const uint4 codes = *(const uint4 *)(octets + (o * ATTEND_KEYS + g) * 128 + (2 * p + c ^ g) * 16);
                attend_multiply_key(first, second, codes, query + (2 * p + c) * 16);
            }
            both[2 * o] = first[0] + second[2];
            both[2 * o + 1] = first[1] + second[3];
        }
        attend_reweigh(sums, both, m, key0, scale);
        weight[0] = tensor_pack<__half>(both[0], both[1]);
        weight[1] = tensor_pack<__half>(both[2], both[3]);
    }
    /* One octet after the other: side by side they take registers from the rest of the kernel. */
    __device__ void add(attend_sums<__half, HD> &sums, const char *octets, const attend_item &m, int key0)
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll 1
        for (int o = 0; o < 2; o++) {
            uint4 value[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const int row = o * ATTEND_KEYS + 2 * p + k;
                value[k] = *(const uint4 *)(octets + row * 128 + (g ^ row % 8) * 16);
                if (!m.sees(key0, 2) && (key0 + row < m.first || key0 + row > m.last))
                    value[k] = make_uint4(0, 0, 0, 0); /* masked ones may be NaN */
            }
            attend_multiply_codes<HD>(sums, value[0], value[1], o == 0 ? weight[0] : weight[1]);
        }
    }
};

#endif
