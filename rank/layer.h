/* rank/layer.h - one transformer layer on one rank: the order of operations and the all-reduces. */
#ifndef RANK_LAYER_H
#define RANK_LAYER_H

#include "rank/comm.h"
#include "rank/network.h"

/* Device buffers of a step, of the queue's activation type, for up to max_batch_tokens rows. */
struct activations {
    void *x;         /* [tokens, hidden] the residual stream, whole on every rank */
    void *normed;    /* [tokens, hidden] */
    void *qkv;       /* [tokens, (n_heads_local + 2 n_kv_local) head_dim] */
    void *attended;  /* [tokens, n_heads_local head_dim] */
    void *mlp;       /* [tokens, (gated ? 2 : 1) ffn_local] */
    void *activated; /* [tokens, ffn_local] */
    void *partial;   /* [tokens, hidden] this rank's share of a sum */
    float *cos_sin;  /* [tokens, rope dims] */
};

struct layer_run {
    const struct network *network;
    const struct ops *ops;
    struct queue *q;
    struct comm *comm;
    struct activations *act;
    const struct batch *batch;
};

/* Run layer `layer` on act->x. `pending` is this rank's share of a sum [tokens, hidden] that is still to be made and added to x, or
 * NULL; so is the result: the next norm does both, which spares passes over memory. Enqueued; collective over comm. */
void *layer_forward(const struct layer_run *r, int layer, void *pending);

/* x += the sum of the ranks' partial, if it is not NULL; out = norm(x). Enqueued, collective. */
void layer_norm(const struct layer_run *r, void *out, void *partial, enum norm_kind kind, const struct weight *w,
                const struct weight *b);

#endif
