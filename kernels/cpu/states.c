/* kernels/cpu/states.c - see kernels/states.h. */
#include "kernels/states.h"

static void scatter_rows(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim)
{
    (void)q;
    for (int i = 0; i < n_rows && dim > 0; i++)
        if (row[i] >= 0)
            memcpy((float *)out + (size_t)row[i] * dim, (const float *)x + (size_t)i * dim,
                   (size_t)dim * sizeof(float));
}

static void copy_columns(struct queue *q, void *out, int out_dim, int first, const void *x, int x_dim, int x_first,
                         const void *add, int n_tokens, int cols)
{
    (void)q;
    for (int t = 0; t < n_tokens && cols > 0; t++) {
        size_t from = (size_t)t * x_dim + x_first;
        float *to = (float *)out + (size_t)t * out_dim + first;
        memcpy(to, (const float *)x + from, (size_t)cols * sizeof *to);
        for (int c = 0; c < cols && add != NULL; c++)
            to[c] += ((const float *)add)[from + c];
    }
}

static void find_places(struct queue *q, int32_t *place, const int32_t *planned, const struct batch *batch,
                        int n_places)
{
    (void)q;
    for (int t = 0; t < batch->n_tokens; t++) {
        int slot = batch->slot[t], pos = batch->pos[t], index = pos / KV_BLOCK_TOKENS;
        place[t] = -1;
        if (slot >= 0 && planned != NULL && planned[t] < 0)
            place[t] = n_places + slot;
        else if (slot >= 0 && pos >= 0 && index < batch->blocks_per_slot)
            place[t] = batch->block_table[(size_t)slot * batch->blocks_per_slot + index] * KV_BLOCK_TOKENS +
                       pos % KV_BLOCK_TOKENS;
    }
}

const struct state_ops state_ops_cpu = {
    .scatter_rows = scatter_rows, .copy_columns = copy_columns, .find_places = find_places};
