/* rank/model/taps.h - the states that a drafting head is fed, one for every token that the main model was fed: for
 * EAGLE-3 hidden states between the model's layers, projected by the head's matrix; for a layer that predicts (MTP) the
 * output of the last norm. They are stored by the block numbers of the model's own keys, so a state exists whenever the
 * keys do, also for shared prefixes. A rank keeps its columns of all states. The head itself computes the state of a
 * draft: one row per slot, after all others. */
#ifndef MODEL_TAPS_H
#define MODEL_TAPS_H

#include "kernels/states.h"
#include "rank/model/layer.h"

struct taps {
    const struct state_ops *ops;
    const struct network *model, *head; /* borrowed */
    const int32_t *block_table;         /* the model's, [max_seqs, blocks_per_slot]: borrowed from its engine */
    int blocks_per_slot;
    int n_places;   /* tokens that the blocks have room for */
    void *states;   /* device [n_places + max_seqs, states_local] */
    void *tapped;   /* device [tokens, n_taps hidden of the model] */
    void *narrow;   /* device [tokens, states_local] */
    int32_t *place; /* device [tokens] rows of `states` */
};

/* Allocate memory for n_blocks blocks of the model, n_seqs slots and steps of n_tokens tokens. Local; -1 and *e on
 * failure; close *t in any case. */
int taps_open(struct taps *t, const struct network *model, const struct network *head, int n_blocks, int n_seqs,
              int n_tokens, const struct ops *ops, struct queue *q, struct err *e);
/* The model's block table, once its engine is open. */
static inline void taps_attach(struct taps *t, const int32_t *block_table, int blocks_per_slot)
{
    t->block_table = block_table;
    t->blocks_per_slot = blocks_per_slot;
}
void taps_close(struct taps *t, const struct ops *ops, struct queue *q); /* safe on a zeroed struct */

/* The bytes of that without blocks, on the rank with this shard of the head, and the bytes of a block. */
size_t taps_bytes(const struct model_config *head, const struct shard *s, int n_seqs, int n_tokens, enum dtype act);
size_t taps_block_bytes(const struct model_config *head, const struct shard *s, enum dtype act);

/* ---- steps of the model; r: of its layers ---- */

/* Record the input of layer `layer` (n_layers: the output of the last one) if the head reads it: act->x after the
 * pending sum, both unchanged. Enqueued. */
void taps_note(const struct layer_run *r, int layer, const void *pending);

/* To be called after the layers, or after the last norm if taps_after_norm: stores the step's states. Enqueued. */
void taps_keep(const struct layer_run *r);

/* Are states the output of the last norm? */
static inline bool taps_after_norm(const struct network *n)
{
    return n->taps != NULL && n->taps->model == n && n->taps->head->config.drafting.predicts;
}

/* ---- steps of the head ---- */

/* act->x = the states of the step's tokens, complete on every rank: the stored ones of planned tokens; for drafts
 * (planned < 0) those that taps_hold kept in the slot. Enqueued; collective over comm. */
void taps_fetch(const struct layer_run *r, const int32_t *planned);

/* act->x = joined w^T, cut by outputs: the layer's input from embedding and state. Otherwise as taps_fetch. */
void taps_join(const struct layer_run *r, const struct weight *w);

/* Keep these rows [n, hidden] as the states of their slots, which are all different. Enqueued. */
void taps_hold(const struct layer_run *r, const void *rows, const int32_t *slot, int n);

#endif
