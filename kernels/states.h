/* kernels/states.h - operations on the hidden states of tokens, the inputs of a drafting head: rows stored in blocks as
 * keys are, and columns side by side. Like the operations of kernels/op_list.h they are enqueued, take the activations'
 * type, never allocate and never wait. Every backend has them. */
#ifndef KERNELS_STATES_H
#define KERNELS_STATES_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct state_ops {
    /* out[row[i]] = x[i], except for row[i] < 0; of equal rows any may win. x: [n_rows, dim], out: [.., dim]; row:
     * device memory. */
    void (*scatter_rows)(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim);
    /* out[t][first + c] = x[t][x_first + c] (+ add[t][x_first + c]), c < cols, rounded once. out: [n_tokens, out_dim],
     * whose other columns are unchanged; x, add: [n_tokens, x_dim]; add NULL: nothing is added. */
    void (*copy_columns)(struct queue *q, void *out, int out_dim, int first, const void *x, int x_dim, int x_first,
                         const void *add, int n_tokens, int cols);
    /* place[t] = the token's row in the blocks of its sequence, block * KV_BLOCK_TOKENS + pos[t] % KV_BLOCK_TOKENS;
     * where planned != NULL and planned[t] < 0, n_places + slot[t]. -1: a token without a sequence, or beyond the
     * table. */
    void (*find_places)(struct queue *q, int32_t *place, const int32_t *planned, const struct batch *batch,
                        int n_places);
};

extern const struct state_ops state_ops_cpu;
#ifdef LOCKSTEP_CUDA
extern const struct state_ops state_ops_cuda;
#endif

/* The operations of the backend that has `ops`. */
static inline const struct state_ops *state_ops_of(const struct ops *ops)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory)
        return &state_ops_cuda;
#endif
    (void)ops;
    return &state_ops_cpu;
}

#ifdef __cplusplus
}
#endif

#endif
