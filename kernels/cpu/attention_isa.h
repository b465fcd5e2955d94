/* kernels/cpu/attention_isa.h - one query against one block of keys and values, for one instruction set (see
 * vector_isa.h); included by attention.c once for each. */
#include "kernels/cpu/vector_isa.h"

/* out[i] = a . b[i] for four rows of n. */
TARGET INLINE void FN(dot4)(float *out, const float *a, const float *const *b, int n)
{
    float sum[4 * SUM_LANES];
    FN(vec) s[4][PARTS] = {{{0}}};
    int c = 0;
    for (; c + SUM_LANES <= n; c += SUM_LANES) {
        UNROLL for (int p = 0; p < PARTS; p++)
        {
            FN(vec) value = FN(load_f32)(a + c + p * LANES);
            UNROLL for (int i = 0; i < 4; i++) s[i][p] += value * FN(load_f32)(b[i] + c + p * LANES);
        }
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        UNROLL for (int p = 0; p < PARTS; p++) FN(store)(sum + i * SUM_LANES + p * LANES, s[i][p]);
    }
    add_lanes(out, sum);
    for (; c < n; c++)
        for (int i = 0; i < 4; i++)
            out[i] += a[c] * b[i][c];
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

/* Online softmax: the sums so far are rescaled whenever a better score appears. */
TARGET static void FN(attend)(struct query *a, const struct heads *h, const float *k, const float *v, int n, int k_pos)
{
    float score[KV_BLOCK_TOKENS], best = a->best, sum = 0;
    for (int j = 0; j < n; j += 4) { /* beyond the last key it is repeated */
        const float *key[4];
        for (int i = 0; i < 4; i++)
            key[i] = k + (size_t)(j + i < n ? j + i : n - 1) * h->head_dim;
        FN(dot4)(score + j, a->q, key, h->head_dim);
    }
    for (int j = 0; j < n; j++)
        score[j] = capped(a->scale * score[j], h->cap) + a->slope * (float)(k_pos + j);
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

/* Codes of E4M3 as floats. A code's bits are those of a float's exponent and mantissa, except for the exponent's
 * bias. */
TARGET static void FN(widen)(float *to, const uint8_t *codes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t code = codes[i], bits = (code & 0x80) << 24 | (code & 0x7f) << 20;
        float x;
        memcpy(&x, &bits, sizeof x);
        to[i] = (code & 0x7f) == 0x7f ? NAN : x * 0x1p120f;
    }
}
