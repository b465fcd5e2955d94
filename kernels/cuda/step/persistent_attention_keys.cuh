/* kernels/cuda/step/persistent_attention_keys.cuh - the persistent kernel's attention over keys and values in the ring,
 * see persistent_keys.cuh. */
#ifndef STEP_PERSISTENT_ATTENTION_KEYS_CUH
#define STEP_PERSISTENT_ATTENTION_KEYS_CUH

#include "kernels/cuda/step/persistent_attention_sums.cuh"
#include "kernels/cuda/step/persistent_stream.cuh"

/* How a warp reads its octet of 16-bit keys or values in a slot. */
template <typename T, int HD>
struct attend_slot_numbers {
    static const int KEYS = 2, BYTES = HD * KEYS; /* of an element; of a head */
    static const bool TOGETHER = false;
    const T *query;         /* of this lane's head */
    float scale, weight[2]; /* weight: of the lane's two keys */

    __device__ attend_slot_numbers(const attend_scratch<HD> *s, int row, float of_scores)
        : query((const T *)s->query[row]), scale(of_scores)
    {
    }
    /* Products of head g with keys 2 p and 2 p + 1 of the octet, then their weights; see attend_sums::score_keys. In
     * each piece of 64 elements lane p has those from 16 p on: the swizzle spreads what lanes read at once of different
     * keys over all banks. */
    __device__ void score(attend_sums<T, HD> &sums, const char *octet, const attend_item &m, int key0)
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
        weight[0] = first[0] + second[2];
        weight[1] = first[1] + second[3];
        attend_reweigh(sums, weight, m, key0, scale);
    }
    __device__ void add(attend_sums<T, HD> &sums, const char *octet, const attend_item &m, int key0)
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int i = 0; i < HD / 64; i++)
                sums.values.value[k][i] =
                    *(const uint4 *)(octet + i * KEY_PIECE + (2 * p + k) * 128 + (g ^ (2 * p + k)) * 16);
        if (!m.sees(key0)) {
#pragma unroll
            for (int k = 0; k < 2; k++) /* masked ones may be NaN */
                if (key0 + 2 * p + k < m.first || key0 + 2 * p + k > m.last)
#pragma unroll
                    for (int i = 0; i < HD / 64; i++)
                        sums.values.value[k][i] = make_uint4(0, 0, 0, 0);
        }
        sums.values.template add_loaded<true>(weight);
    }
};

/* The warp's octets of this block's part, slot by slot: every warp waits for every slot and frees it. Returns the ring
 * behind them. */
template <typename SLOT, typename T, int HD, int SLOTS>
__device__ static inline weight_ring<SLOTS> attend_slots(weight_ring<SLOTS> ring, attend_scratch<HD> *s,
                                                         const chain_shared &sh, const attend_item &m, key_span span,
                                                         float scale)
{
    attend_sums<T, HD> sums;
    sums.clear();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, OCTETS = key_octets(SLOT::KEYS);
    const int STRIDE = CHAIN_WARPS * OCTETS, own = m.last;
    SLOT slot(s, lane / 4 < m.n_rows ? lane / 4 : 0, scale);
    attend_item seen = m;
    if (OCTETS > 1) { /* one of them may belong to another part */
        seen.first = max(m.first, m.begin * ATTEND_KEYS);
        seen.last = min(m.last, m.end * ATTEND_KEYS - 1);
    }
    int block = -1;
    auto take = [&](bool wanted, int octet, int which, auto use) {
        barrier_wait(ring.filled(), ring.round);
        if (wanted) {
            char *at = key_place<SLOT::BYTES, SLOT::KEYS>(sh.base + ring.slot * RING_SLOT_BYTES);
            if (own / ATTEND_KEYS / OCTETS == octet / OCTETS)
                key_patch<SLOT::BYTES>(at, own % (OCTETS * ATTEND_KEYS), s->vector[m.n_rows + which]);
            use(at);
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
    };
#pragma unroll 1
    for (int i = 0, first = span.begin; first < span.end; i++, first += STRIDE) {
        const int octet = first + warp * OCTETS, key0 = octet * ATTEND_KEYS, later = octet + lane * STRIDE;
        if (i % 32 == 0)
            block = later + OCTETS > m.begin && later < m.end ? m.table[later / (KV_BLOCK_TOKENS / ATTEND_KEYS)] : -1;
        const bool wanted = __shfl_sync(0xffffffffu, block, i % 32) >= 0;
        take(wanted, octet, 0, [&](const char *at) { slot.score(sums, at, seen, key0); });
        take(wanted, octet, 1, [&](const char *at) { slot.add(sums, at, seen, key0); });
    }
    sums.template store<SLOT::TOGETHER>(s, m.n_rows);
    return ring;
}

/* The same as a call: in a narrow step whose sequences are short it costs no registers. */
template <typename SLOT, typename T, int HD, int SLOTS>
__device__ __noinline__ static weight_ring<SLOTS> attend_slots_apart(weight_ring<SLOTS> ring, attend_scratch<HD> *s,
                                                                     chain_shared sh, attend_item m, key_span span,
                                                                     float scale)
{
    return attend_slots<SLOT, T>(ring, s, sh, m, span, scale);
}

#endif
