/* kernels/persistent.h - a whole decode step, one token for each of a few sequences, as one operation: the second way
 * to run a step, beside the separate operations of ops.h, with equal results within rounding. Optional for a backend
 * (ops->persistent), which may also refuse a model; that model then runs by the separate operations.
 *
 * The step: embedding | SUM, then for every layer
 *   sequential  x += attn(norm x) | SUM;  x += mlp(norm' x) | SUM
 *   parallel    x += attn(norm x) + mlp(norm' x) | SUM
 * where sequential layers may also normalise each output, after its sum, before it is added to x;
 * then the final norm and this rank's rows of the logits. SUM: over the ranks, by the devices themselves, which write
 * into each other's memory. */
#ifndef KERNELS_PERSISTENT_H
#define KERNELS_PERSISTENT_H

#include "kernels/peer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PERSISTENT_MAX_RANKS  PEER_MAX_RANKS
#define PERSISTENT_MAX_TOKENS 16

/* Weights of one layer, shapes as in ops.h; NULL: the model has no such weight, or another rank adds it. */
struct decode_layer {
    const struct weight *attn_norm, *attn_norm_bias, *mlp_norm, *mlp_norm_bias; /* [1, hidden] */
    const struct weight *attn_out_norm, *mlp_out_norm;                          /* of the outputs, [1, hidden] */
    const struct weight *qkv, *qkv_bias, *q_norm, *k_norm; /* [q heads, k heads, v heads; hidden] */
    const struct weight *out, *out_bias;                   /* [hidden, n_heads head_dim] */
    const struct weight *mlp_in, *mlp_in_bias;             /* [(gated ? 2 : 1) ffn, hidden] */
    const struct weight *mlp_out, *mlp_out_bias;           /* [hidden, ffn] */
    void *k_cache, *v_cache;
    struct heads heads;
};

/* Pointers are borrowed and must outlive the struct persistent opened with them. */
struct decode_model {
    int n_layers, hidden, ffn; /* ffn: this rank's columns */
    bool gated, parallel, shared_norm;
    bool mixture; /* the model is a struct decode_mixture's (kernels/decode_mixture.h) */
    bool several; /* see there: a sequence may have several tokens in a step, and taps may be wanted */
    enum activation activation;
    enum norm_kind norm;
    float norm_eps;
    const struct rope *rope, *window_rope; /* window_rope: of windowed layers. NULL: none; the same as rope */
    float embed_scale;                     /* the embedding is multiplied by this factor; 0: it is not */
    const struct weight *embed, *position; /* position NULL: the model has no learned positions */
    int first_id, position_offset;         /* of embed's first row; added to a position */
    const struct weight *final_norm, *final_norm_bias; /* [1, hidden] */
    const struct weight *head, *head_bias;             /* [vocab of this rank, hidden] */
    const struct decode_layer *layer;                  /* [n_layers] */
    int rank, n_ranks;
};

struct persistent_ops {
    /* Returns why this device cannot run the model so, as the end of a sentence ("heads of 80 elements"); NULL: it can.
     * Local */
    const char *(*refusal)(struct queue *q, const struct decode_model *m);
    /* Size of the memory to which the other ranks write their sums, for any model on n_ranks; 0: the device supports no
     * model. Local */
    size_t (*sums_bytes)(struct queue *q, int n_ranks);
    /* Allocates device memory for steps of up to PERSISTENT_MAX_TOKENS tokens, or fewer if the multiprocessors lack
     * room. sums: NULL, or sums_bytes of device memory, which stay the caller's and are cleared by the queue; no other
     * device may write to them until attach. Any thread, with a queue of its own that it waits for. NULL (and
     * queue.err) on failure. close accepts NULL. */
    void *(*open)(struct queue *q, const struct decode_model *m, void *sums);
    void (*close)(struct queue *q, void *p);
    int (*max_tokens)(const void *p);
    /* memory: the memory of this device to which the others write their sums, to be shared as kernels/peer.h describes;
     * attach: that of all ranks, [n_ranks], before the first run and with the queue of the runs. */
    void *(*memory)(void *p);
    void (*attach)(struct queue *q, void *p, void *const *memory);
    /* logits: [n_tokens, vocab of this rank]. Every token belongs to a different sequence, unless the model has
     * `several`. cos_sin, window_cos_sin: of ops->rope_table, for rope and window_rope. Enqueued. All ranks must run
     * the same steps: a device waits for the others within it. Between two steps a rank must wait for something that
     * every other rank does after the first step, such as gathering the logits: the next step's first words overwrite
     * memory where the others might otherwise still read the last step's last words. */
    void (*run)(struct queue *q, void *p, void *logits, const struct batch *batch, const float *cos_sin,
                const float *window_cos_sin);
};

#ifdef __cplusplus
}
#endif

#endif
