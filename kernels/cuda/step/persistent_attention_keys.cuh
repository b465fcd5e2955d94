/* kernels/cuda/step/persistent_attention_keys.cuh - the persistent kernel's attention over keys and values in the ring,
 * see persistent_keys.cuh. */
#ifndef STEP_PERSISTENT_ATTENTION_KEYS_CUH
#define STEP_PERSISTENT_ATTENTION_KEYS_CUH

#include "kernels/cuda/step/persistent_attention_sums.cuh"
#include "kernels/cuda/step/persistent_stream.cuh"

/* Products of head g with keys 2 p and 2 p + 1 of an octet; see attend_sums::score_keys. In each piece of 64 elements
 * lane p has those from 16 p on: the swizzle spreads what lanes read at once of different keys over all banks. */
template <typename T, int HD>
__device__ static inline void attend_slot_scores(float (&to)[2], const char *octet, const T *query)
{
    int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4, at = g * 128 + (2 * p ^ g) * 16;
    float first[4] = {}, second[4] = {};
#pragma unroll
    for (int c = 0; c < HD / 32; c++) {
        uint4 key = *(const uint4 *)(octet + c / 2 * KEY_PIECE + (at ^ c % 2 * 16)),
              q = *(const uint4 *)(query + c / 2 * 64 + p * 16 + c % 2 * 8);
        tensor_mma<T>(first, q.x, q.y, q.z, q.w, key.x, key.y);
        tensor_mma<T>(second, q.x, q.y, q.z, q.w, key.z, key.w);
    }
    to[0] = first[0] + second[2];
    to[1] = first[1] + second[3];
}

/* The octet's values, for attend_values::add_loaded. */
template <typename T, int HD>
__device__ static inline void attend_slot_values(attend_values<T, HD> &values, const char *octet, const attend_item &m,
                                                 int key0)
{
    int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int i = 0; i < HD / 64; i++)
            values.value[k][i] = *(const uint4 *)(octet + i * KEY_PIECE + (2 * p + k) * 128 + (g ^ (2 * p + k)) * 16);
    if (key0 >= m.first && key0 + ATTEND_KEYS - 1 <= m.last)
        return;
#pragma unroll
    for (int k = 0; k < 2; k++) /* masked ones may be NaN */
        if (key0 + 2 * p + k < m.first || key0 + 2 * p + k > m.last)
#pragma unroll
            for (int i = 0; i < HD / 64; i++)
                values.value[k][i] = make_uint4(0, 0, 0, 0);
}

/* The warp's octets of this block's part, slot by slot: every warp waits for every slot and frees it. */
template <typename T, int HD, int SLOTS>
__device__ static inline void attend_slots(weight_ring<SLOTS> &ring, attend_sums<T, HD> &sums,
                                           const attend_scratch<HD> *s, const chain_shared &sh, const attend_item &m,
                                           const key_span &span, float scale)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, OCTETS = KV_BLOCK_TOKENS / ATTEND_KEYS;
    const T *query = (const T *)s->query[lane / 4 < m.n_rows ? lane / 4 : 0];
    const int own = m.last / ATTEND_KEYS; /* the octet with the token's own key */
    int block = -1;
    auto take = [&](bool wanted, int octet, int which, auto use) {
        barrier_wait(ring.filled(), ring.round);
        if (wanted) {
            char *at = key_octet<HD>(sh.base + ring.slot * RING_SLOT_BYTES);
            if (octet == own)
                key_patch<HD>(at, m.last % ATTEND_KEYS, s->vector[m.n_rows + which]);
            use(at);
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
    };
#pragma unroll 1
    for (int i = 0, first = span.begin; first < span.end; i++, first += KEY_OCTETS) {
        const int octet = first + warp, key0 = octet * ATTEND_KEYS, later = octet + lane * KEY_OCTETS;
        if (i % 32 == 0)
            block = later >= m.begin && later < m.end ? m.table[later / OCTETS] : -1;
        const bool wanted = __shfl_sync(0xffffffffu, block, i % 32) >= 0;
        float weight[2];
        take(wanted, octet, 0, [&](const char *at) { attend_slot_scores<T, HD>(weight, at, query); });
        if (wanted) {
            float keep = sums.weigh(weight, m, key0, scale);
            if (__any_sync(0xffffffffu, keep != 1.0f)) /* a new best is rare */
                sums.values.rescale(keep, m.n_rows);
        }
        take(wanted, octet, 1, [&](const char *at) {
            attend_slot_values<T, HD>(sums.values, at, m, key0);
            sums.values.template add_loaded<true>(weight);
        });
    }
}

#endif
