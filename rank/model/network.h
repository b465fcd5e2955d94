/* rank/model/network.h - one rank's share of a model on its device: config, shard, weights by role, KV cache. */
#ifndef MODEL_NETWORK_H
#define MODEL_NETWORK_H

#include "kernels/inputs.h"
#include "kernels/ops.h"
#include "partition/weights.h"
#include "rank/model/kv_arena.h"

struct taps;

struct network {
    struct model_config config;
    struct shard shard;
    struct weight_map map;
    struct weight *weight;                       /* [map.n_slots] on the device */
    const struct weight *once[WEIGHT_COUNT];     /* roles of the model itself; NULL: the config has none */
    const struct weight *(*layer)[WEIGHT_COUNT]; /* [n_layers] roles of each layer */
    struct input_form *input_form; /* [map.n_slots] how the activations of a weight are quantised, or NULL */
    int n_inputs[2]; /* weights whose activations are declared quantised: numbers that the device does not and does
                        support */
    char inputs_refusal[96]; /* the reason for one that it does not support, or "" */
    struct weight tied_head; /* once[WEIGHT_HEAD], if the run made it from the embedding */
    void **slab;             /* [n_slabs] memory of the weights; NULL: each has its own */
    int n_slabs;
    void *wide;             /* see struct weight */
    float *alibi_slopes;    /* device [n_heads_local], or NULL */
    float *kv_scales;       /* device [n_layers, 2, n_kv_local], or NULL: see struct heads */
    int32_t *drafted;       /* [vocab] a token's row in a drafting head's logits, -1: none; NULL: all tokens have one */
    int32_t *drafted_dev;   /* the same on the device */
    int32_t *last_token;    /* borrowed, device [max_seqs]: of a draft model, whose steps leave their drafts there for
                            the main model; or NULL */
    struct taps *taps;      /* borrowed: of a model whose states a drafting head is fed, and of the head; or NULL */
    struct kv_arena *arena; /* borrowed: keys and values are in its units; NULL: in their own memory */
    struct network_blocks {
        int per_unit;          /* blocks per unit, equal on all ranks */
        int parts;             /* parts of a block, one per cache */
    } blocks[KV_KINDS];        /* of an arena */
    void **k_cache, **v_cache; /* [n_layers] [n_blocks, n_kv_local, KV_BLOCK_TOKENS, head_dim]; of latents the same */
    int window;                /* layers that see at most this many tokens have blocks of kind KV_WINDOWED; 0: none */
};

/* Take device memory for every weight of the rank (contents undefined until loaded) and resolve the roles. c may be
 * NULL: a run without a checkpoint. The network keeps nothing of c. gently: other queues of the device have work
 * meanwhile that must not slow down: memory is allocated, and later freed, in few pieces and zeroed with pauses; q is
 * not used otherwise. Local. */
int network_open(struct network *n, const struct model_config *m, const struct shard *s, const struct checkpoint *c,
                 bool gently, const struct ops *ops, struct queue *q, struct err *e);

/* Take device memory for n_blocks[kind] KV blocks in every layer of a kind. window: see above. Local. */
int network_open_kv(struct network *n, const int n_blocks[KV_KINDS], int window, const struct ops *ops, struct queue *q,
                    struct err *e);

/* Instead, use blocks in units of an arena, per_unit[kind] in each. The blocks of unit u are numbered from u
 * per_unit[kind] on. Local. */
int network_share_kv(struct network *n, struct kv_arena *arena, const int per_unit[KV_KINDS], int window,
                     struct queue *q, struct err *e);

/* The index in k_cache and v_cache of a block of a plan for this model; clears a unit that another model has used. */
int32_t network_find_block(struct network *n, enum kv_kind kind, int32_t block, int model, const struct ops *ops,
                           struct queue *q);

void network_close(struct network *n, const struct ops *ops, struct queue *q);

/* Bytes of one KV block in one cache of one layer. */
size_t network_kv_part_bytes(const struct model_config *m, const struct shard *s, enum dtype act);

/* Bytes of one KV block over all layers of a kind on a rank with this shard. window: see above. */
size_t network_kv_block_bytes(const struct model_config *m, const struct shard *s, int window, enum kv_kind kind,
                              enum dtype act);

/* The kind of KV blocks that a layer has. */
static inline enum kv_kind network_kv_kind(const struct network *n, int layer)
{
    return model_layer_is_windowed(&n->config, layer, n->window) ? KV_WINDOWED : KV_MAIN;
}

/* The matrix of the logits: the head, or the embedding. */
static inline const struct weight *network_head(const struct network *n)
{
    return n->once[n->once[WEIGHT_HEAD] != NULL ? WEIGHT_HEAD : WEIGHT_EMBED];
}

/* The heads of a layer in the form that operations take. */
struct heads network_heads(const struct network *n, int layer);

#endif
