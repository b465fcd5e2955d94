/* kernels/cpu/qkv_store.c - from the projections of q, k and v to what attention reads: per-head norms, rotation, and
 * k and v in the cache. */
#include "kernels/cpu/cpu.h"

#include <math.h>

static void norm_head(float *x, const struct weight *w, int dim, float eps)
{
    double sum = 0;
    for (int d = 0; d < dim; d++)
        sum += (double)x[d] * x[d];
    double inverse = 1.0 / sqrt(sum / dim + eps);
    for (int d = 0; d < dim; d++)
        x[d] = dtype_load(w->data, w->type, (size_t)d) * (float)(x[d] * inverse);
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

/* The offset in the cache of local KV head 0 of token t, in elements; -1: none (a plan that was not checked). */
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

void cpu_qkv_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                   const struct batch *batch, const struct rope *rope, const float *cos_sin,
                   const struct weight *q_norm, const struct weight *k_norm, float eps)
{
    int dim = heads->head_dim, n_kv = heads->n_kv_heads, n_q = heads->n_heads;
    size_t width = (size_t)(n_q + 2 * n_kv) * dim;
#pragma omp parallel for num_threads(cpu_threads(q, batch->n_tokens *width * 4)) schedule(static)
    for (int t = 0; t < batch->n_tokens; t++) {
        float *row = (float *)qkv + t * width;
        for (int h = 0; h < n_q + n_kv; h++) {
            const struct weight *norm = h < n_q ? q_norm : k_norm;
            if (norm)
                norm_head(row + (size_t)h * dim, norm, dim, eps);
            if (rope)
                rotate_head(row + (size_t)h * dim, rope, cos_sin + (size_t)t * rope->dims);
        }
        int64_t at = cache_offset(heads, batch, t);
        for (int h = 0; h < n_kv && at >= 0; h++, at += (int64_t)KV_BLOCK_TOKENS * dim) {
            memcpy((float *)k_cache + at, row + (size_t)(n_q + h) * dim, (size_t)dim * sizeof *row);
            memcpy((float *)v_cache + at, row + (size_t)(n_q + n_kv + h) * dim, (size_t)dim * sizeof *row);
        }
    }
}
