/* kernels/cuda/step/persistent_attention_codes.cuh - keys and values that are codes of E4M3, in the persistent kernel's
 * attention. Codes become f16 by one instruction for two of them, whatever the type of activations: so the query is
 * f16, too, times a power of two that brings it into range, and so are the weights, which are at most 1. One number is
 * enough for a weight here, since a value has four bits of its own. An octet of codes takes half the registers of one
 * of numbers, so a warp has CODE_OCTETS of them on their way: with fewer bytes in flight memory would be no faster. */
#ifndef STEP_PERSISTENT_ATTENTION_CODES_CUH
#define STEP_PERSISTENT_ATTENTION_CODES_CUH

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/step/persistent_attention.cuh"

#define CODE_OCTETS 2 /* of a warp in registers */

/* Eight codes to eight numbers. */
__device__ static inline uint4 attend_decode(uint2 codes)
{
    uint32_t low[2], high[2];
    code_pairs<__half, CODES_E4M3>::decode(low, codes.x, 0);
    code_pairs<__half, CODES_E4M3>::decode(high, codes.y, 0);
    return make_uint4(low[0], low[1], high[0], high[1]);
}

/* Where a lane finds its elements of the keys and values of the warp's octets: these have the same place in their
 * blocks, since a warp has every second octet at most. */
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
        key = (const uint8_t *)layer.k_cache + at + g * HD + p * 8;
        value = (const uint8_t *)layer.v_cache + at + 2 * p * HD + g * 8;
    }
};

/* An octet: the elements of keys and values that attend_sums and attend_values have in a lane. */
template <int HD>
struct attend_code_octet {
    uint2 key[HD / 32], value[2][HD / 64];
    int block; /* of the cache; -1: there is no such octet */

    /* block: set; key0: its first key. Values of unseen keys may be NaN: they must not meet their weight of 0. */
    __device__ void load(const attend_code_place<HD> &from, const attend_item &m, int key0)
    {
        if (block < 0)
            return;
        ptrdiff_t at = (ptrdiff_t)block * from.block_bytes;
#pragma unroll
        for (int c = 0; c < HD / 32; c++)
            key[c] = __ldcg((const uint2 *)(from.key + at + c * 32));
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int pos = key0 + threadIdx.x % 4 * 2 + n;
            bool seen = pos >= m.first && pos <= m.last;
#pragma unroll
            for (int c = 0; c < HD / 64; c++)
                value[n][c] = seen ? __ldcg((const uint2 *)(from.value + at + n * HD + c * 64)) : make_uint2(0, 0);
        }
    }
};

/* The octet with its first key key0 joins the sums. query: of this lane's head; scale: of that, too. */
template <int HD>
__device__ static inline void attend_add_codes(attend_sums<__half, HD> &sums, const attend_code_octet<HD> &octet,
                                               const __half *query, const attend_item &m, int key0, float scale)
{
    float first[4] = {}, second[4] = {};
#pragma unroll
    for (int c = 0; c < HD / 32; c++) {
        uint4 q = *(const uint4 *)(query + c * 32 + threadIdx.x % 4 * 8), key = attend_decode(octet.key[c]);
        tensor_mma<__half>(first, q.x, q.y, q.z, q.w, key.x, key.y);
        tensor_mma<__half>(second, q.x, q.y, q.z, q.w, key.z, key.w);
    }
    float weight[2] = {first[0] + second[2], first[1] + second[3]}, keep = sums.weigh(weight, m, key0, scale);
    if (__any_sync(0xffffffffu, keep != 1.0f)) /* a new best is rare */
        sums.values.rescale(keep, m.n_rows);
    uint32_t w = tensor_pack<__half>(weight[0], weight[1]);
#pragma unroll
    for (int c = 0; c < HD / 64; c++)
        sums.values.template multiply<false>(c, attend_decode(octet.value[0][c]), attend_decode(octet.value[1][c]), w,
                                             0);
}

/* All octets of this warp. ids: its blocks of the first 32; scale: of the keys' codes, too. */
template <int HD>
__device__ __forceinline__ static void attend_codes(attend_sums<__half, HD> &sums, const attend_scratch<HD> *s,
                                                    const chain_args &a, const chain_layer &layer, const attend_item &m,
                                                    int ids, float scale)
{
    int lane = threadIdx.x % 32, g = lane / 4, row = g < m.n_rows ? g : 0, octet0 = m.begin + (int)threadIdx.x / 32;
    const __half *query = (const __half *)s->query[row];
    scale *= s->factor[row];
    const attend_code_place<HD> from(a, layer, m);
    attend_code_octet<HD> octet[CODE_OCTETS];
#pragma unroll
    for (int k = 0; k < CODE_OCTETS; k++) {
        octet[k].block = __shfl_sync(0xffffffffu, ids, k);
        octet[k].load(from, m, (octet0 + k * CHAIN_WARPS) * ATTEND_KEYS);
    }
#pragma unroll 1
    for (int i = 0; octet0 + i * CHAIN_WARPS < m.end; i += CODE_OCTETS)
#pragma unroll
        for (int k = 0; k < CODE_OCTETS; k++) {
            int next = i + k + CODE_OCTETS, key0 = (octet0 + (i + k) * CHAIN_WARPS) * ATTEND_KEYS;
            if (octet[k].block >= 0)
                attend_add_codes<HD>(sums, octet[k], query, m, key0, scale);
            if (next % 32 == 0)
                ids = m.octet_block(next + lane);
            octet[k].block = __shfl_sync(0xffffffffu, ids, next % 32);
            octet[k].load(from, m, key0 + CODE_OCTETS * CHAIN_WARPS * ATTEND_KEYS);
        }
}

#endif
