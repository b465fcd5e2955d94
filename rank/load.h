/* rank/load.h - bring the checkpoint's bytes to the device: the ranks of a node read each byte once, together. */
#ifndef RANK_LOAD_H
#define RANK_LOAD_H

#include "base/progress.h"
#include "partition/checkpoint.h"
#include "partition/read_plan.h"
#include "rank/network.h"
#include "rank/world.h"

/* This rank's. */
struct load_stats {
    uint64_t bytes_read;
    double seconds;
    double bus_rate; /* bytes/s from pinned memory to its device, all ranks of the node at once; 0: not measured */
    double peak_host_bytes; /* resident, page cache aside */
};

/* All ranks': equal everywhere. */
struct load_report {
    double bytes_read, bytes_held; /* sums */
    double seconds;                /* of the slowest */
    double device_rate;            /* bytes/s of weights that arrived on the slowest device */
    double bus_rate, bus_share;    /* the lowest of each: bus_rate as above, device_rate / bus_rate; 0: not measured */
    double peak_host_bytes;        /* the largest */
};

/* Rank 0 has opened *m and *c; the others get copies. Collective; no file is touched. The caller closes c everywhere. */
int load_share_headers(struct model_config *m, struct checkpoint *c, struct world *w, struct err *e);

/* Fill the network's weights from the checkpoint. Collective over the node: a failure on one rank ends the reading on all
 * ranks of its node after the same block; the caller agrees afterwards. with_bus (equal on all ranks): measure the way to
 * the device first, with up to 1 GiB a rank. */
int load_weights(struct network *n, const struct checkpoint *c, struct world *w, const struct ops *ops, struct queue *q,
                 enum progress_mode progress, bool with_bus, struct load_stats *stats, struct err *e);

/* Put the ranks' figures together. Collective. */
void load_report(const struct network *n, const struct load_stats *stats, const struct world *w, struct load_report *r);

/* Fill them with noise of a sensible size instead (--load-format dummy). Local. */
void load_dummy(struct network *n, const struct ops *ops, struct queue *q, uint64_t seed);

#endif
