/* rank/instance/fit.h - checks that a model fits into memory, before loading, and reports the numbers. */
#ifndef INSTANCE_FIT_H
#define INSTANCE_FIT_H

#include "plan/plan.h"
#include "rank/model/network.h"
#include "rank/world/world.h"

/* The memory that a rank, or all ranks that share a host's memory, will allocate. */
struct fit {
    size_t weights, working; /* working: see engine_bytes */
    size_t kv_least;         /* one block of 16 tokens; with kv_bytes >= 0 the bytes that will certainly be taken */
    size_t kv_wanted;        /* all that the limits ask for */
    size_t loading;          /* peak of weights during loading, before any of the rest is allocated; 0: no more than
                       afterwards */
    size_t available;
    const char *limit; /* why no more is available than that, if the host has more; NULL: no reason */
};

/* A model for a rank. */
struct fit_part {
    const struct model_config *model;
    const struct shard *shard;
    const struct checkpoint *checkpoint; /* NULL: weights are not read */
    struct limits limits;
    enum dtype act; /* of activations */
};

#define FIT_PARTS 2 /* a model, and one that drafts for it */

/* Set l->window and the wanted l->n_window_blocks from the model and the other limits: twice a window per sequence and
 * the tokens of a step, so that half of them serve the prefix cache. Layers whose window covers max_len count as not
 * windowed. One kind of blocks remains if two would take no less. */
void fit_kinds(struct limits *l, const struct model_config *m);

/* Reduce the numbers of blocks to those that fit into `available` bytes. block: [KV_KINDS] bytes of one block of each
 * kind; 0: any number fits. If not all fit, windowed layers get their wanted blocks up to half of the bytes or up to
 * their share of the wanted total, whichever is more; and in any case the window of one sequence, as long as that is no
 * more than the other layers have. So sequences of any length find both kinds. */
void fit_divide(struct limits *l, const size_t block[KV_KINDS], size_t available);

/* Bytes of the blocks in the limits, and of one block of each kind, on a rank with this shard. */
size_t fit_kv_bytes(const struct model_config *m, const struct shard *s, const struct limits *l, enum dtype act);
void fit_block_bytes(const struct model_config *m, const struct shard *s, const struct limits *l, enum dtype act,
                     size_t block[KV_KINDS]);

/* The tokens of a step, which is that of all n_parts models: part->limits.max_batch_tokens, halved while the working
 * memory takes more than an eighth of the `available` bytes that the weights leave, but not below 512 or the number of
 * sequences. available 0: unknown. */
int fit_step(const struct fit_part *part, int n_parts, const struct ops *ops, size_t available, struct err *e);

/* The free memory of the device or, where ranks share the host's, of the host, as far as limits of the job let its
 * ranks use it (base/memory_limit.h). limit: the lowest one that counts, otherwise NULL. 0: unknown. */
size_t fit_free_memory(const struct ops *ops, struct queue *q, int n_node_ranks, const char **limit);

/* The part of the free memory without working memory that keys and values may take. */
size_t fit_kv_part(size_t available, size_t working, bool host);

/* Refuse a run whose heads are not supported or that does not fit: weights, working memory and the minimum of keys and
 * values of n_parts models, which have equal numbers of blocks, are compared with the free memory. kv_bytes: as in
 * fit_kv. Collective over the node. */
int fit_check(const struct fit_part *part, int n_parts, const struct world *w, const struct ops *ops, struct queue *q,
              int64_t kv_bytes, struct err *e);

/* The bytes of weights and working memory that a model takes on the rank that holds most of it, before anything is
 * read. Local; any thread. */
int fit_need(const struct model_config *m, const struct checkpoint *c, const struct limits *l, int n_ranks,
             const struct ops *ops, int64_t *need, struct err *e);

/* Its share of an arena of kv_bytes, for each kind of blocks: share is [KV_KINDS]. One sequence may take as many bytes
 * as the weights, but at least a useful minimum: l->max_len is lowered if that is too little. Local; any thread. */
int fit_share(const struct model_config *m, const struct checkpoint *c, struct limits *l, int n_ranks,
              const struct ops *ops, size_t kv_bytes, struct kv_share *share, struct err *e);

/* Refuse heads that the device's attention does not support. */
int fit_heads(const struct model_config *m, const struct ops *ops, struct err *e);

/* Sets *e to the refusal if it does not fit. */
int fit_judge(const struct fit *f, bool host, struct err *e);

/* Reduce l->n_blocks and n_window_blocks (in: wanted; out: equal on all ranks) to those that fit into kv_bytes on every
 * rank or, with kv_bytes < 0, into fit_kv_part of a rank's share of the free memory. Each of the models has n_blocks,
 * and windowed ones if the limits of its part say so. Fails if not even one sequence of 16 tokens fits. Collective. */
int fit_kv(struct limits *l, const struct fit_part *part, int n_parts, const struct world *w, const struct ops *ops,
           struct queue *q, int64_t kv_bytes, struct err *e);

#endif
