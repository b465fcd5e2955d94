/* rank/model/layer.h - one transformer layer on one rank: the order of operations and the all-reduces. */
#ifndef MODEL_LAYER_H
#define MODEL_LAYER_H

#include "rank/comm/comm.h"
#include "rank/model/network.h"

/* Device buffers of a step, of the queue's activation type, for up to max_batch_tokens rows. */
struct activations {
    void *x;         /* [tokens, hidden] the residual stream, complete on every rank */
    void *normed;    /* [tokens, hidden] */
    void *qkv;       /* [tokens, (n_heads_local + 2 n_kv_local) head_dim] */
    void *attended;  /* [tokens, n_heads_local head_dim] */
    void *mlp;       /* [tokens, (gated ? 2 : 1) ffn_local], or one row of an expert's size per pair */
    void *activated; /* [tokens, ffn_local], the same */
    void *said;      /* [tokens n_chosen, hidden] outputs of the experts, if a layer has any */
    struct routes routes;
    void *ordered;         /* [tokens, columns of the widest matrix whose inputs are reordered] */
    void *coded;           /* quantised inputs of a product, if activations are quantised */
    float *largest;        /* the largest magnitudes of their groups */
    void *partial;         /* [tokens, hidden] this rank's share of a sum, then the sum */
    float *cos_sin;        /* [tokens, rope dims] */
    float *window_cos_sin; /* [tokens, window_rope dims] of the windowed layers, if they differ */
    void *joined;          /* [tokens, 2 hidden] of a drafting head: the normalised embedding, and the state */
    float *squares;        /* [tokens, 2] sums of squares of all q and all k heads, if they are normalised as rows */
    /* of latent attention */
    void *heads;        /* [tokens, n_heads_local (key + rotated)], then [tokens, n_heads_local value] */
    void *latent;       /* [tokens, head_dim] */
    void *query_latent; /* [tokens, query_rank] */
};

struct layer_run {
    const struct network *network;
    const struct ops *ops;
    struct queue *q;
    struct comm *comm;
    struct activations *act;
    const struct batch *batch;
    const struct batch *windowed; /* the same with the block table of windowed layers */
    int n_pieces;                 /* of the rows, see piece.h */
};

/* The batch with the blocks of the layer's kind. */
static inline const struct batch *layer_batch(const struct layer_run *r, int layer)
{
    return network_kv_kind(r->network, layer) == KV_WINDOWED ? r->windowed : r->batch;
}

/* The n_rows inputs in the form that a product with w takes: quantised if w->inputs says how and the device's products
 * do not quantise themselves. Enqueued; collective over comm if other ranks have inputs of the same rows. */
const void *layer_inputs(const struct layer_run *r, const void *in, const struct weight *w, int n_rows);

/* out = in w^T (+ bias) (+ out if accumulate) of n rows: ops->matmul, after the inputs have been quantised or put into
 * the order of the matrix's columns if w requires it (in NULL: they are in r->ops->inputs already). r->batch is not
 * read. Otherwise as layer_inputs. */
void layer_product(const struct layer_run *r, void *out, const void *in, const struct weight *w,
                   const struct weight *bias, int n, bool accumulate);

/* Run layer `layer` on act->x. `pending` is a reduced sum [tokens, hidden] that is still to be added to x, or NULL; so
 * is the result: the next norm adds it, which saves a pass over memory. On one rank the products may have added it
 * themselves (kernels/adding.h), which saves another. The sum's pieces may still be under way: whoever reads it calls
 * comm_end_sums. Enqueued; collective over comm. */
const void *layer_forward(const struct layer_run *r, int layer, const void *pending);

#endif
