/* rank/model/taps.h - the states that a drafting head is fed, of every token that another model was fed: of EAGLE-3
 * what this model computes between its layers, made narrower by the head's matrix; of a layer that predicts (MTP) what
 * its last norm says.
 *
 * They are kept by the blocks of the model's own keys: a state belongs to its token's place there, so it is there
 * whenever the keys are, also for sequences that share a beginning. A rank keeps its columns of all states. The head
 * itself computes the state behind a draft: one row for each slot, behind all of those. */
#ifndef MODEL_TAPS_H
#define MODEL_TAPS_H

#include "kernels/states.h"
#include "rank/model/layer.h"

struct taps {
    const struct state_ops *ops;
    const struct network *model, *head; /* borrowed */
    const int32_t *block_table;         /* the model's, [max_seqs, blocks_per_slot]: borrowed from its engine */
    int blocks_per_slot;
    int n_places;   /* tokens for which blocks have room */
    void *states;   /* device [n_places + max_seqs, states_local] */
    void *tapped;   /* device [tokens, n_taps hidden of the model] */
    void *narrow;   /* device [tokens, states_local] */
    int32_t *place; /* device [tokens] rows of `states` */
};

/* Memory for n_blocks blocks of the model, n_seqs slots and steps of n_tokens tokens. Local; -1 and *e, and *t is to be
 * closed in any case. */
int taps_open(struct taps *t, const struct network *model, const struct network *head, int n_blocks, int n_seqs,
              int n_tokens, const struct ops *ops, struct queue *q, struct err *e);
/* The model's block table, once its engine is open. */
static inline void taps_attach(struct taps *t, const int32_t *block_table, int blocks_per_slot)
{
    t->block_table = block_table;
    t->blocks_per_slot = blocks_per_slot;
}
void taps_close(struct taps *t, const struct ops *ops, struct queue *q); /* safe on a zeroed struct */

/* Bytes of that, on the rank with this shard of the head, without blocks; bytes of a block. */
size_t taps_bytes(const struct model_config *head, const struct shard *s, int n_seqs, int n_tokens, enum dtype act);
size_t taps_block_bytes(const struct model_config *head, const struct shard *s, enum dtype act);

/* ---- steps of the model; r: of its layers ---- */

/* Note what enters layer `layer` (their number: what leaves the last), if the head reads it: act->x after the pending
 * sum, which stay as they are. Enqueued. */
void taps_note(const struct layer_run *r, int layer, const void *pending);

/* Behind the layers, and the last norm where taps_after_norm: the step's states, to their places. Enqueued. */
void taps_keep(const struct layer_run *r);

/* Are states what the last norm says? */
static inline bool taps_after_norm(const struct network *n)
{
    return n->taps != NULL && n->taps->model == n && n->taps->head->config.drafting.predicts;
}

/* ---- steps of the head ---- */

/* act->x = the states that the step's tokens are fed with, complete on every rank: those at their places, where the
 * token was planned; of drafts (planned < 0) what taps_hold kept in the slot. Enqueued; collective over comm. */
void taps_fetch(const struct layer_run *r, const int32_t *planned);

/* act->x = joined w^T, cut by outputs, of an input of the layer that is made of embedding and state. As taps_fetch. */
void taps_join(const struct layer_run *r, const struct weight *w);

/* Keep these rows [n, hidden] as the states of their slots; no two are of one. Enqueued. */
void taps_hold(const struct layer_run *r, const void *rows, const int32_t *slot, int n);

#endif
