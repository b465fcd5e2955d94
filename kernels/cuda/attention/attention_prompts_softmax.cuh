/* kernels/cuda/attention/attention_prompts_softmax.cuh - the softmax of attention_prompts.cuh and, with the same
 * roundings, of attention_same.cuh. */
#ifndef ATTENTION_ATTENTION_PROMPTS_SOFTMAX_CUH
#define ATTENTION_ATTENTION_PROMPTS_SOFTMAX_CUH

#include "kernels/cuda/attention/attention_tile.cuh"

/* The online softmax of a thread's two rows; scores are unscaled products until they become weights. STEP: the number
 * of keys at a time; attention_same.cuh has a quarter of a step's. */
template <int STEP>
struct prompt_rows {
    int first[2], last[2]; /* positions that they see */
    float slope[2];        /* in units of the scores */
    float best[2], sum[2]; /* sum: over this lane's keys only */

    /* The bias counts from the last key that a row sees, which does not change the softmax, and keeps scores near it
     * exact. */
    __device__ void bias(float (&s)[STEP / 2], int key0) const
    {
        int own = key0 + (int)threadIdx.x % 4 * 2;
        float high[2] = {(float)(last[0] - own), (float)(last[1] - own)};
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = fmaf(slope[i / 2 % 2], (float)(i / 4 * 8 + i % 2) - high[i / 2 % 2], s[i]);
    }
    /* Masks keys after a row's last one, keys before its first one, and missing blocks. */
    __device__ void mask_later(float (&s)[STEP / 2], int key0) const
    {
        int own = key0 + (int)threadIdx.x % 4 * 2, high[2] = {last[0] - own, last[1] - own};
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = i / 4 * 8 + i % 2 > high[i / 2 % 2] ? -INFINITY : s[i];
    }
    __device__ void mask_earlier(float (&s)[STEP / 2], int key0) const
    {
        int own = key0 + (int)threadIdx.x % 4 * 2, low[2] = {first[0] - own, first[1] - own};
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = i / 4 * 8 + i % 2 < low[i / 2 % 2] ? -INFINITY : s[i];
    }
    __device__ void mask_absent(float (&s)[STEP / 2], unsigned present) const
    {
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = present >> (i / 8) & 1 ? s[i] : -INFINITY;
    }
    /* Initialises row i; head: its query head. */
    template <typename T>
    __device__ void begin(int i, const attention_args<T> &a, attention_range seen, int head)
    {
        first[i] = seen.first;
        last[i] = seen.last;
        slope[i] = a.heads.alibi_slopes ? a.heads.alibi_slopes[head] / a.heads.scale : 0;
        best[i] = -INFINITY;
        sum[i] = 0;
    }
    /* The rows' best scores of these keys. */
    __device__ static void highest(const float (&s)[STEP / 2], float (&top)[2])
    {
        top[0] = top[1] = -INFINITY;
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
        }
    }
    /* top: the best scores of a step. keep: the factor of a row's sums so far; base: of weigh_keys */
    __device__ void raise(const float (&top)[2], float scale, float (&keep)[2], float (&base)[2])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float all = fmaxf(best[i], top[i]), finite = all == -INFINITY ? 0.0f : all;
            keep[i] = fast_exp2((best[i] - finite) * scale);
            base[i] = finite * scale;
            best[i] = all;
        }
    }
    /* Turns the scores of KEYS keys into weights, and adds these. ROWS: of this thread, 1 or 2 */
    template <int KEYS, int ROWS = 2>
    __device__ static void weigh_keys(float *s, float scale, const float (&base)[2], float (&part)[ROWS])
    {
#pragma unroll
        for (int i = 0; i < KEYS / 4 * ROWS; i++) {
            s[i] = fast_exp2(fmaf(s[i], scale, -base[i / 2 % ROWS]));
            part[i / 2 % ROWS] = i == 0 || i == 2 * (ROWS - 1) ? s[i] : part[i / 2 % ROWS] + s[i];
        }
    }
    /* part: sums of the weights of each quarter of a step */
    template <int ROWS>
    __device__ static float sum_of_step(const float (&part)[4][ROWS], int i)
    {
        return (part[0][i] + part[1][i]) + (part[2][i] + part[3][i]);
    }
    __device__ void add(float2 of_step, float2 keep)
    {
        sum[0] = fmaf(sum[0], keep.x, of_step.x);
        sum[1] = fmaf(sum[1], keep.y, of_step.y);
    }
    /* Turns the scores of a step into weights. */
    __device__ void weigh(float (&s)[STEP / 2], float scale, float (&keep)[2])
    {
        float top[2], base[2], part[4][2];
        highest(s, top);
        raise(top, scale, keep, base);
#pragma unroll
        for (int i = 0; i < 4; i++)
            weigh_keys<STEP / 4>(s + i * (STEP / 8), scale, base, part[i]);
        add(make_float2(sum_of_step(part, 0), sum_of_step(part, 1)), make_float2(keep[0], keep[1]));
    }
    __device__ float all_lanes_sum(int i) const
    {
        float all = sum[i] + __shfl_xor_sync(0xffffffffu, sum[i], 1);
        return all + __shfl_xor_sync(0xffffffffu, all, 2);
    }
    /* The factor of row i's sums of values in the result; all: of its weights. */
    template <typename T>
    __device__ float share(int i, const attention_args<T> &a, int head, float all) const
    {
        all += sink_weight(a, head, last[i], __fmul_rn(best[i], a.heads.scale * ATTENTION_LOG2_E));
        return all > 0 ? 1 / all : 0.0f;
    }
};

#endif
