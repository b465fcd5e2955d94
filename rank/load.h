/* rank/load.h - bring the checkpoint's bytes to the device: the ranks of a node read each byte once, together. */
#ifndef RANK_LOAD_H
#define RANK_LOAD_H

#include "base/progress.h"
#include "partition/checkpoint.h"
#include "partition/read_plan.h"
#include "rank/network.h"
#include "rank/world.h"

struct load_stats {
    uint64_t bytes_read; /* by this rank */
    double seconds;
};

/* Rank 0 has opened *m and *c; the others get copies. Collective; no file is touched. The caller closes c everywhere. */
int load_share_headers(struct model_config *m, struct checkpoint *c, struct world *w, struct err *e);

/* Fill the network's weights from the checkpoint. Collective over the node: a failure on one rank ends the reading on all
 * ranks of its node after the same block; the caller agrees afterwards. */
int load_weights(struct network *n, const struct checkpoint *c, struct world *w, const struct ops *ops, struct queue *q,
                 enum progress_mode progress, struct load_stats *stats, struct err *e);

/* Fill them with noise of a sensible size instead (--load-format dummy). Local. */
void load_dummy(struct network *n, const struct ops *ops, struct queue *q, uint64_t seed);

#endif
