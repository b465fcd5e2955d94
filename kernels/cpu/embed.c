/* kernels/cpu/embed.c - operations that move or add whole rows: tokens in, embeddings, residual sums, rows and columns
 * of logits. */
#include "kernels/cpu/cpu.h"

#include <math.h>

void cpu_feed(struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
              const struct sampler *s, int n_tokens)
{
    (void)q;
    for (int t = 0; t < n_tokens; t++) {
        bool known = slot[t] >= 0 && slot[t] < s->n_slots;
        if (planned[t] >= 0)
            token[t] = planned[t];
        else
            token[t] = known ? s->last_token[(-1 - planned[t]) * s->n_slots + slot[t]] : 0;
        if (known && pos[t] >= 0 && pos[t] < s->max_len)
            s->history[(size_t)slot[t] * s->max_len + pos[t]] = token[t];
    }
}

void cpu_embed(struct queue *q, void *out, const int32_t *token, const struct weight *table, int first_id, int n_tokens)
{
    int dim = table->cols;
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens *dim)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        float *row = (float *)out + (size_t)t * dim;
        int64_t id = (int64_t)token[t] - first_id;
        bool mine = id >= 0 && id < table->rows;
        for (int c = 0; c < dim; c++)
            row[c] = mine ? dtype_load(table->data, table->type, (size_t)id * dim + c) : 0.0f;
    }
}

void cpu_gather_columns(struct queue *q, void *out, const void *x, const int32_t *order, int n_tokens, int dim,
                        int cols)
{
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens *cols)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        const float *from = (const float *)x + (size_t)t * dim;
        float *to = (float *)out + (size_t)t * cols;
        for (int c = 0; c < cols; c++)
            to[c] = order[c] >= 0 ? from[order[c]] : 0;
    }
}

void cpu_add_position(struct queue *q, void *x, const struct weight *table, const int32_t *pos, int offset,
                      int n_tokens)
{
    int dim = table->cols;
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens *dim)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        float *row = (float *)x + (size_t)t * dim;
        int64_t i = (int64_t)pos[t] + offset;
        if (i < 0 || i >= table->rows)
            continue;
        for (int c = 0; c < dim; c++)
            row[c] += dtype_load(table->data, table->type, (size_t)i * dim + c);
    }
}

void cpu_add(struct queue *q, void *x, const void *y, size_t n)
{
    float *to = x;
    const float *from = y;
#pragma omp parallel for num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

void cpu_scale(struct queue *q, void *x, float factor, float cap, size_t n)
{
    float *to = x;
#pragma omp parallel for num_threads(cpu_threads(q, n)) schedule(static)
    for (size_t i = 0; i < n; i++)
        to[i] = cap > 0 ? cap * tanhf(to[i] * factor / cap) : to[i] * factor;
}

void cpu_gather_rows(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim)
{
    (void)q;
    if (dim == 0)
        return;
    for (int i = 0; i < n_rows; i++) {
        float *to = (float *)out + (size_t)i * dim;
        if (row[i] >= 0)
            memcpy(to, (const float *)x + (size_t)row[i] * dim, (size_t)dim * sizeof *to);
        else
            memset(to, 0, (size_t)dim * sizeof *to);
    }
}

void cpu_join_columns(struct queue *q, void *out, const void *in, const int *begin, int n_ranks, int n_rows)
{
    (void)q;
    int dim = begin[n_ranks];
    for (int r = 0; r < n_ranks; r++) {
        size_t width = (size_t)(begin[r + 1] - begin[r]);
        const float *block = (const float *)in + (size_t)n_rows * begin[r];
        for (int i = 0; i < n_rows && width > 0; i++)
            memcpy((float *)out + (size_t)i * dim + begin[r], block + i * width, width * sizeof *block);
    }
}
