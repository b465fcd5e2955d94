/* rank/instance/fit.h - does it fit? Said before loading, with the numbers. */
#ifndef INSTANCE_FIT_H
#define INSTANCE_FIT_H

#include "plan/plan.h"
#include "rank/model/network.h"
#include "rank/world/world.h"

/* The memory that a rank, or all ranks that share a host's memory, will allocate. */
struct fit {
    size_t weights, working; /* working: see engine_bytes */
    size_t kv_least;         /* one block of 16 tokens; with kv_bytes >= 0 what is certain to be taken */
    size_t kv_wanted;        /* all that the limits ask for */
    size_t loading; /* the most that weights take on their way, before there is any of the rest; 0: no more than then */
    size_t available;
};

/* A model as a rank is to hold it. */
struct fit_part {
    const struct model_config *model;
    const struct shard *shard;
    const struct checkpoint *checkpoint; /* NULL: weights are not read */
    struct limits limits;
    enum dtype act; /* of activations */
};

#define FIT_PARTS 2 /* a model, and one that drafts for it */

/* Set l->window, and l->n_window_blocks as wanted, by the model and the other limits: a window for each sequence and
 * the tokens of a step, twice, so that as much again is kept for the prefix cache. Layers that see everything within
 * max_len count as such. One kind of blocks remains where two would take no less. */
void fit_kinds(struct limits *l, const struct model_config *m);

/* Reduce the numbers of blocks to what `available` bytes hold. block: [KV_KINDS] bytes of one of each kind; 0: any
 * number is there. If not all fits, windowed layers get what they want up to half of the bytes, or to their share of
 * all that is wanted, if that is more; and in any case the window of one sequence, as long as that takes no more than
 * the others have. Sequences of any length then find both. */
void fit_divide(struct limits *l, const size_t block[KV_KINDS], size_t available);

/* Bytes of the blocks that the limits want, and of one block of each kind, on a rank with this shard. */
size_t fit_kv_bytes(const struct model_config *m, const struct shard *s, const struct limits *l, enum dtype act);
void fit_block_bytes(const struct model_config *m, const struct shard *s, const struct limits *l, enum dtype act,
                     size_t block[KV_KINDS]);

/* The tokens of a step, which is that of all n_parts models: part->limits.max_batch_tokens, halved while the working
 * memory takes more than an eighth of what the weights leave of `available` bytes, but neither fewer than 512 nor than
 * sequences. available 0: unknown. */
int fit_step(const struct fit_part *part, int n_parts, const struct ops *ops, size_t available, struct err *e);

/* The part of the free memory, beside the working memory, that keys and values may take. */
size_t fit_kv_part(size_t available, size_t working, bool host);

/* Refuse a run that cannot be, for its heads, or cannot fit: weights, working memory and the least of keys and
 * values of n_parts models, which have equally many blocks, against what is free. kv_bytes: as in fit_kv. Collective
 * over the node. */
int fit_check(const struct fit_part *part, int n_parts, const struct world *w, const struct ops *ops, struct queue *q,
              int64_t kv_bytes, struct err *e);

/* The bytes of weights and working memory that a model takes on the rank that holds most of it, before anything is
 * read. Local; any thread. */
int fit_need(const struct model_config *m, const struct checkpoint *c, const struct limits *l, int n_ranks,
             const struct ops *ops, int64_t *need, struct err *e);

/* Its part of an arena of kv_bytes, for each kind of blocks: share is [KV_KINDS]. One sequence has as many bytes as the
 * weights, or as a model of any use has: l->max_len is lowered where that is too little. Local; any thread. */
int fit_share(const struct model_config *m, const struct checkpoint *c, struct limits *l, int n_ranks,
              const struct ops *ops, size_t kv_bytes, struct kv_share *share, struct err *e);

/* Refuse heads that the device's attention does not take. */
int fit_heads(const struct model_config *m, const struct ops *ops, struct err *e);

/* The line of a refusal, or nothing when it fits. */
int fit_judge(const struct fit *f, bool host, struct err *e);

/* Reduce l->n_blocks and n_window_blocks (in: wanted; out: equal on all ranks) to what kv_bytes of every rank hold, or,
 * with kv_bytes < 0, to fit_kv_part of a rank's share of the free memory. Every one of the models has n_blocks, by the
 * limits of its part windowed ones, too. Fails when not even one sequence of 16 tokens fits. Collective. */
int fit_kv(struct limits *l, const struct fit_part *part, int n_parts, const struct world *w, const struct ops *ops,
           struct queue *q, int64_t kv_bytes, struct err *e);

#endif
