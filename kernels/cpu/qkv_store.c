/* kernels/cpu/qkv_store.c - prepares the projections of q, k and v for attention: norms of heads, rotation, and storing
 * k and v in the cache. */
#include "kernels/cpu/cpu.h"

#include <math.h>

static double sum_squares(const float *x, int n, double around)
{
    double sum = 0;
    for (int d = 0; d < n; d++)
        sum += (x[d] - around) * (x[d] - around);
    return sum;
}

static double mean_of(const float *x, int n)
{
    double sum = 0;
    for (int d = 0; d < n; d++)
        sum += x[d];
    return sum / n;
}

/* Normalises head `head` of the rank, of q or k; squares: sum over all n elements of the model's heads if they are one
 * row. */
static void norm_head(float *x, const struct weight *w, int head, int dim, const struct head_norms *norms,
                      const float *squares, int n)
{
    size_t first = w && w->cols > dim ? (size_t)head * dim : 0;
    double mean = norms->kind == NORM_LAYER ? mean_of(x, dim) : 0;
    double variance = squares != NULL ? (double)*squares / n : sum_squares(x, dim, mean) / dim;
    double inverse = 1.0 / sqrt(variance + norms->eps);
    float offset = norms->kind == NORM_RMS_OFFSET ? 1.0f : 0.0f;
    for (int d = 0; d < dim; d++)
        x[d] = (w ? offset + dtype_load(w->data, w->type, first + d) : 1.0f) * (float)((x[d] - mean) * inverse);
}

static void rotate_head(float *x, const struct rope *rope, const float *cos_sin)
{
    int pairs = rope->dims / 2;
    for (int j = 0; j < pairs; j++) {
        int ia = rope->layout == ROPE_HALF ? j : 2 * j;
        int ib = rope->layout == ROPE_HALF ? j + pairs : 2 * j + 1;
        float a = x[ia], b = x[ib], c = cos_sin[j], s = cos_sin[pairs + j];
        x[ia] = a * c - b * s;
        x[ib] = b * c + a * s;
    }
}

/* The offset in the cache of local KV head 0 of token t, in elements; -1: none (an unchecked plan). */
static int64_t cache_offset(const struct heads *h, const struct batch *batch, int t)
{
    int32_t slot = batch->slot[t], pos = batch->pos[t];
    if (slot < 0 || pos < 0 || pos / KV_BLOCK_TOKENS >= batch->blocks_per_slot)
        return -1;
    int64_t block = batch->block_table[(size_t)slot * batch->blocks_per_slot + pos / KV_BLOCK_TOKENS];
    if (block < 0)
        return -1;
    return (block * h->n_kv_heads * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS) * h->head_dim;
}

void cpu_head_squares(struct queue *q, float *squares, const void *qkv, const struct heads *heads, struct kv_range kv,
                      int n_tokens)
{
    int dim = heads->head_dim, n_q = heads->n_heads;
    size_t width = (size_t)(n_q + 2 * heads->n_kv_heads) * dim;
#pragma omp parallel for num_threads(cpu_threads(q, n_tokens *width)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        const float *row = (const float *)qkv + t * width;
        squares[2 * t] = (float)sum_squares(row, n_q * dim, 0);
        squares[2 * t + 1] = (float)sum_squares(row + (size_t)(n_q + kv.begin) * dim, (kv.end - kv.begin) * dim, 0);
    }
}

/* The factor of a query at this position. */
static float query_factor(const struct rope *rope, int pos)
{
    if (rope->query_growth == 0)
        return 1;
    int n_periods = (pos + rope->query_shift) / rope->query_period;
    return 1 + rope->query_growth * logf((float)(1 + n_periods));
}

/* The heads of q and k of token t. */
static void finish_heads(float *row, const struct heads *heads, int t, int pos, const struct rope *rope,
                         const float *cos_sin, const struct head_norms *norms)
{
    int dim = heads->head_dim, n_q = heads->n_heads;
    float factor = rope ? query_factor(rope, pos) : 1;
    for (int h = 0; h < n_q + heads->n_kv_heads; h++) {
        float *x = row + (size_t)h * dim;
        bool is_k = h >= n_q;
        const struct weight *w = is_k ? norms->k : norms->q;
        if ((w || norms->unit) && !norms->rotated)
            norm_head(x, w, is_k ? h - n_q : h, dim, norms, norms->squares ? &norms->squares[2 * t + is_k] : NULL,
                      is_k ? norms->n_k : norms->n_q);
        if (rope)
            rotate_head(x, rope, cos_sin + (size_t)t * rope->dims);
        if (norms->rotated)
            norm_head(x, w, is_k ? h - n_q : h, dim, norms, NULL, 0);
        for (int d = 0; d < dim && !is_k && factor != 1; d++)
            x[d] *= factor;
    }
}

/* Stores the latent of a token in the cache: normalised, with the last `rotated` elements rotated instead. */
static void store_latent(float *to, const float *from, int dim, const struct rope *rope, const float *cos_sin,
                         const struct weight *w, float eps)
{
    int rank = dim - rope->dims;
    double inverse = 1.0 / sqrt(sum_squares(from, rank, 0) / rank + eps);
    for (int d = 0; d < rank; d++)
        to[d] = dtype_load(w->data, w->type, (size_t)d) * (float)(from[d] * inverse);
    memcpy(to + rank, from + rank, (size_t)rope->dims * sizeof *to);
    rotate_head(to + rank, rope, cos_sin);
}

void cpu_latent_store(struct queue *q, void *qkv, const void *query, int query_dim, const void *latent, void *cache,
                      const struct heads *heads, const struct batch *batch, const struct rope *rope,
                      const float *cos_sin, const struct weight *norm, float eps)
{
    int dim = heads->head_dim, n_heads = heads->n_heads, turned = rope->dims;
    size_t width = (size_t)(n_heads + 2 * heads->n_kv_heads) * dim;
    if (n_heads == 0)
        return;
#pragma omp parallel for num_threads(cpu_threads(q, batch->n_tokens *width)) schedule(static)
    for (int t = 0; t < batch->n_tokens; t++) {
        const float *angles = cos_sin + (size_t)t * turned;
        for (int h = 0; h < n_heads; h++) {
            float *to = (float *)qkv + t * width + (size_t)(h + 1) * dim - turned;
            const float *from = (const float *)query + ((size_t)t * n_heads + h + 1) * query_dim - turned;
            memcpy(to, from, (size_t)turned * sizeof *to);
            rotate_head(to, rope, angles);
        }
        int64_t at = cache_offset(heads, batch, t);
        if (at >= 0)
            store_latent((float *)cache + at, (const float *)latent + (size_t)t * dim, dim, rope, angles, norm, eps);
    }
}

/* Stores a head's k or v in the cache, from element `at` on. scale: of codes; NULL: the cache holds floats. */
static void keep_head(void *cache, int64_t at, const float *x, int dim, const float *scale)
{
    if (scale == NULL) {
        memcpy((float *)cache + at, x, (size_t)dim * sizeof *x);
        return;
    }
    for (int d = 0; d < dim; d++)
        ((uint8_t *)cache)[at + d] = float_to_e4m3(x[d] / *scale);
}

void cpu_qkv_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                   const struct batch *batch, const struct rope *rope, const float *cos_sin,
                   const struct head_norms *norms)
{
    int dim = heads->head_dim, n_kv = heads->n_kv_heads, n_q = heads->n_heads;
    size_t width = (size_t)(n_q + 2 * n_kv) * dim;
#pragma omp parallel for num_threads(cpu_threads(q, batch->n_tokens *width * 4)) schedule(static)
    for (int t = 0; t < batch->n_tokens; t++) {
        float *row = (float *)qkv + t * width;
        finish_heads(row, heads, t, batch->pos[t], rope, cos_sin, norms);
        int64_t at = cache_offset(heads, batch, t);
        for (int h = 0; h < n_kv && at >= 0; h++, at += (int64_t)KV_BLOCK_TOKENS * dim) {
            const float *scale = heads->kv_scales != NULL ? heads->kv_scales + h : NULL;
            keep_head(k_cache, at, row + (size_t)(n_q + h) * dim, dim, scale);
            keep_head(v_cache, at, row + (size_t)(n_q + n_kv + h) * dim, dim, scale != NULL ? scale + n_kv : NULL);
        }
    }
}

/* The two operations are as fast. */
bool cpu_store_and_attend(struct queue *q, void *out, const void *qkv, void *k_cache, void *v_cache,
                          const struct heads *heads, const struct batch *batch, const struct rope *rope,
                          const float *cos_sin, const struct head_norms *norms)
{
    (void)q, (void)out, (void)qkv, (void)k_cache, (void)v_cache;
    (void)heads, (void)batch, (void)rope, (void)cos_sin, (void)norms;
    return false;
}
