/* kernels/cuda/step/persistent_attention_sums.cuh - one warp's work on its octets of keys and values: scores on the
 * tensor cores, with the keys as the narrow operand straight from the cache; values there, too, with the heads as the
 * narrow operand (heads of 256 elements: by hand). */
#ifndef STEP_PERSISTENT_ATTENTION_SUMS_CUH
#define STEP_PERSISTENT_ATTENTION_SUMS_CUH

#include "kernels/cuda/step/persistent_attention_item.cuh"

/* A warp's sums of values over its octets, and the values of the octet in flight; g = lane / 4, p = lane % 4. On the
 * tensor cores, with heads as the narrow operand: lane (g, p) has elements 8 (8 i + g) .. of heads 2 p and 2 p + 1, and
 * loads those elements of keys 2 p and 2 p + 1. A weight is two numbers of T, the rounded weight and its residual. */
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
    /* v: of the octet's first key, key0. Values of masked keys may be NaN: their weight of 0 must not be multiplied by
     * it. */
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
    /* Elements 8 (8 i + g) .. of keys 2 p and 2 p + 1, times their weights w; LEFT: and the residuals of these,
     * AT_ONCE: by one instruction, as if of twice the keys. */
    template <bool LEFT, bool AT_ONCE = false>
    __device__ void multiply(int i, const uint4 &first, const uint4 &second, uint32_t w, uint32_t left)
    {
        const uint32_t even[4] = {first.x, first.y, first.z, first.w},
                       odd[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32_t a0 = __byte_perm(even[e], odd[e], 0x5410), a1 = __byte_perm(even[e], odd[e], 0x7632);
            if (AT_ONCE) {
                tensor_mma<T>(out[4 * i + e], a0, a1, a0, a1, w, left);
                continue;
            }
            tensor_mma_narrow<T>(out[4 * i + e], a0, a1, w);
            if (LEFT)
                tensor_mma_narrow<T>(out[4 * i + e], a0, a1, left);
        }
    }
    /* weight: of head g and keys 2 p, 2 p + 1. */
    __device__ void add(const T *, const attend_item &, int, const float (&weight)[2])
    {
        add_loaded<false>(weight);
    }
    template <bool AT_ONCE>
    __device__ void add_loaded(const float (&weight)[2])
    {
        uint32_t w = tensor_pack<T>(weight[0], weight[1]);
        float2 nearest = tensor_unpack<T>(w);
        uint32_t left = tensor_pack<T>(weight[0] - nearest.x, weight[1] - nearest.y);
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            multiply<true, AT_ONCE>(i, value[0][i], value[1][i], w, left);
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
    /* to: [n_rows][HD]. TOGETHER: a lane's eights are not 8 (8 i + g) .. but 8 (CHUNKS g + i) .. */
    template <bool TOGETHER>
    __device__ void store(float *to, int n_rows) const
    {
        int g = threadIdx.x % 32 / 4, p = threadIdx.x % 4;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 2 * CHUNKS; i++)
                if (2 * p + h < n_rows)
                    *(float4 *)(to + (2 * p + h) * HD + (TOGETHER ? CHUNKS * g + i / 2 : 8 * (i / 2) + g) * 8 +
                                i % 2 * 4) =
                        make_float4(out[2 * i][h], out[2 * i][2 + h], out[2 * i + 1][h], out[2 * i + 1][2 + h]);
    }
};

/* Heads of 256 elements have too many sums for that: lane l adds elements 8 l .. of up to two heads, 4 keys at a
 * time. */
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
    template <bool>
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

/* A warp's sums over its octets. Lane (g, p) holds the best score and the sum of weights of query head g, the sum over
 * its own keys only. Lanes of heads outside the item hold another head's values, which are never read. */
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

    /* score += q.k over CHUNKS times 32 elements from column c0 on. As in chain_tile the query's registers are an
     * operand without shuffles (attend_vector), and half of each result is valid. */
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

    /* Turns scores into weights, two of this lane's of each octet from key0 on, and rescales the sum so far to the new
     * best; returns the factor for the results so far. */
    template <int N>
    __device__ float weigh(float (&weight)[N], const attend_item &m, int key0, float scale)
    {
        float top = best;
#pragma unroll
        for (int i = 0; i < N; i++) {
            int at = key0 + i / 2 * ATTEND_KEYS + threadIdx.x % 4 * 2 + i % 2;
            weight[i] = at >= m.first && at <= m.last ? weight[i] * scale : -INFINITY;
            top = fmaxf(top, weight[i]);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float base = top == -INFINITY ? 0.0f : top, keep = fast_exp2(best - base);
        best = top;
        sum *= keep;
#pragma unroll
        for (int i = 0; i < N; i++) {
            weight[i] = fast_exp2(weight[i] - base);
            sum += weight[i];
        }
        return keep;
    }

    /* One octet, this warp's first one or another; k, v: its first key's. */
    __device__ void add(const attend_scratch<HD> *s, const T *k, const T *v, const attend_item &m, int key0,
                        float scale, bool is_first)
    {
        int g = threadIdx.x % 32 / 4;
        const T *query = (const T *)s->query[g < m.n_rows ? g : 0];
        float first[4] = {}, second[4] = {};
        values.load(v, m, key0); /* in flight together with the keys */
#pragma unroll 1
        for (int c = 0; c < HD / 32; c += CHUNKS)
            score_keys(first, second, query, k, c);
        float weight[2] = {first[0] + second[2], first[1] + second[3]}, keep = weigh(weight, m, key0, scale);
        if (!is_first)
            values.rescale(keep, m.n_rows);
        values.add(v, m, key0, weight);
    }

    /* Stores the sums to the scratch, for the other warps. TOGETHER: see attend_values */
    template <bool TOGETHER>
    __device__ void store(attend_scratch<HD> *s, int n_rows)
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0)
            s->sums[warp][lane / 4] = make_float2(best, sum);
        values.template store<TOGETHER>(s->out[warp][0], n_rows);
    }
};

/* Scores to weights, and the sums so far to the new best, which is rare. */
template <typename T, int HD, int N>
__device__ static inline void attend_reweigh(attend_sums<T, HD> &sums, float (&weight)[N], const attend_item &m,
                                             int key0, float scale)
{
    float keep = sums.weigh(weight, m, key0, scale);
    if (__any_sync(0xffffffffu, keep != 1.0f))
        sums.values.rescale(keep, m.n_rows);
}

#endif
