/* kernels/cpu/attention_isa.h - one query against one block of keys and values, for one instruction set (see
 * vector_isa.h); included by attention.c once for each. */
#include "kernels/cpu/vector_isa.h"

TARGET INLINE float FN(add_lanes)(const FN(vec) * s)
{
    float l[SUM_LANES];
    UNROLL for (int p = 0; p < PARTS; p++) FN(store)(l + p * LANES, s[p]);
    for (int i = 0; i < 8; i++)
        l[i] += l[i + 8];
    for (int i = 0; i < 4; i++)
        l[i] += l[i + 4];
    return (l[0] + l[2]) + (l[1] + l[3]);
}

TARGET INLINE float FN(dot)(const float *a, const float *b, int n)
{
    FN(vec) s[PARTS] = {{0}};
    int i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
        UNROLL for (int p = 0; p < PARTS; p++) s[p] +=
            FN(load_f32)(a + i + p * LANES) * FN(load_f32)(b + i + p * LANES);
    }
    float sum = FN(add_lanes)(s);
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* out = out * keep + sum_j weight[j] v[j], v: [n, dim] */
TARGET INLINE void FN(mix)(float *out, const float *v, const float *weight, int n, int dim, float keep)
{
    int i = 0;
    for (; i + SUM_LANES <= dim; i += SUM_LANES) {
        FN(vec) s[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++) s[p] = FN(load_f32)(out + i + p * LANES) * keep;
        for (int j = 0; j < n; j++) {
            UNROLL for (int p = 0; p < PARTS; p++) s[p] +=
                FN(load_f32)(v + (size_t)j * dim + i + p * LANES) * weight[j];
        }
        UNROLL for (int p = 0; p < PARTS; p++) FN(store)(out + i + p * LANES, s[p]);
    }
    for (; i < dim; i++) {
        float s = out[i] * keep;
        for (int j = 0; j < n; j++)
            s += v[(size_t)j * dim + i] * weight[j];
        out[i] = s;
    }
}

/* Softmax as it goes: the sums so far are scaled down whenever a better score appears. */
TARGET static void FN(attend)(struct query *a, const struct heads *h, const float *k, const float *v, int n, int k_pos)
{
    float score[KV_BLOCK_TOKENS], best = a->best, sum = 0;
    for (int j = 0; j < n; j++)
        score[j] = h->scale * FN(dot)(a->q, k + (size_t)j * h->head_dim, h->head_dim) + a->slope * (float)(k_pos + j);
    for (int j = 0; j < n; j++)
        best = score[j] > best ? score[j] : best;
    float keep = expf(a->best - best);
    for (int j = 0; j < n; j++) {
        score[j] = expf(score[j] - best);
        sum += score[j];
    }
    FN(mix)(a->out, v, score, n, h->head_dim, keep);
    a->sum = a->sum * keep + sum;
    a->best = best;
}
