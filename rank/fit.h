/* rank/fit.h - does it fit? Said before loading, with the numbers. */
#ifndef RANK_FIT_H
#define RANK_FIT_H

#include "rank/network.h"
#include "rank/plan.h"
#include "rank/world.h"

/* Will the weights of all ranks fit into the memory that is free? c: NULL when they are not read. Collective over the
 * node. */
int fit_weights(const struct model_config *m, const struct shard *s, const struct checkpoint *c, const struct world *w,
                const struct ops *ops, struct queue *q, struct err *e);

/* Reduce l->n_blocks (in: wanted; out: equal on all ranks) to what kv_bytes of every rank hold, or, with kv_bytes < 0, to
 * half of a rank's share of the free memory. Fails when not even one sequence of 16 tokens fits. Collective. */
int fit_kv(struct limits *l, const struct model_config *m, const struct shard *s, const struct world *w,
           const struct ops *ops, struct queue *q, int64_t kv_bytes, struct err *e);

#endif
