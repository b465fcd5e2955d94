/* rank/load/load.h - loads the checkpoint to the device: the ranks of a node read each byte once, together; or, if the
 * files are in memory, each rank reads its own slices. */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include "base/choices.h"
#include "base/progress.h"
#include "partition/checkpoint.h"
#include "partition/read_plan.h"
#include "rank/load/window.h"
#include "rank/model/network.h"
#include "rank/world/world.h"

#include <stdatomic.h>

/* How a rank reads; 0: the default. Flat: broadcast. */
struct load_setup {
    int32_t way;       /* enum load_way */
    int32_t n_threads; /* number of reading threads */
    int32_t n_slots;   /* blocks of the window: being read, and copied out of */
    /* Size of one request if several threads read; for ranks that read alone: of a block, which is one request or one
     * per row. */
    int64_t piece_bytes;
};

/* How a rank's main thread spends its time while weights are loaded, to show the bottleneck. */
enum load_part {
    LOAD_WINDOW,  /* making the window, and pinning it */
    LOAD_READING, /* waiting for blocks of its own to be read */
    LOAD_DEVICE,  /* waiting for copies to the device */
    LOAD_RANKS,   /* waiting for the node's other ranks */
    LOAD_PLACING, /* copying into place, or enqueueing copies */
    N_LOAD_PARTS
};

/* This rank's. */
struct load_stats {
    uint64_t bytes_read;
    double seconds;
    double bus_rate; /* bytes/s from pinned memory to its device, all ranks of the node at once; 0: not measured */
    double peak_host_bytes;    /* resident, page cache aside */
    double part[N_LOAD_PARTS]; /* s */
};

/* All ranks': equal everywhere. */
struct load_report {
    double bytes_read, bytes_held; /* sums */
    double seconds;                /* of the slowest */
    double device_rate;            /* bytes/s of weights that arrived on the slowest device */
    double bus_rate, bus_share;    /* minima over ranks: bus_rate as above, device_rate / bus_rate; 0: not measured */
    double peak_host_bytes;        /* the largest */
    double part[N_LOAD_PARTS];     /* s, means over the ranks */
    struct load_setup setup;       /* as it was done on this rank */
};

/* Broadcasts *m and *c, which rank 0 has opened. Collective; reads no file. The caller closes c on all ranks. -1 on all
 * ranks if one of them lacks memory, with *e there. */
int load_share_headers(struct model_config *m, struct checkpoint *c, struct world *w, struct err *e);

/* Fill the network's weights from the checkpoint. Collective over all ranks; a failure on one of them is reported on
 * that rank, and to the others by the caller's agreement afterwards. with_bus (equal on all ranks): measure the bus
 * to the device first, with up to 1 GiB a rank. *setup (equal on all ranks except for the threads): defaults are filled
 * in. */
int load_weights(struct network *n, const struct checkpoint *c, struct world *w, const struct ops *ops, struct queue *q,
                 struct load_setup *setup, enum progress_mode progress, bool with_bus, struct load_stats *stats,
                 struct err *e);

/* The state of a rank's loads beside steps. */
struct load_side {
    struct window window; /* stays open for the next load */
    /* Number of steps of other models so far, written by the thread that submits them. While it grows, loading leaves
     * the device to them for a part of the time. */
    atomic_ulong n_steps;
};

/* The same for this rank alone, on any thread, beside steps: neither sends failures to other ranks nor receives theirs.
 * The queue is the thread's own. Fails soon after *cancel becomes true. Local. */
int load_beside(struct network *n, const struct checkpoint *c, const struct world *w, const struct ops *ops,
                struct queue *q, struct load_side *side, struct load_setup *setup, const atomic_bool *cancel,
                struct load_stats *stats, struct err *e);

/* Put the ranks' figures together. Collective. */
void load_report(const struct network *n, const struct load_stats *stats, const struct world *w, struct load_report *r);

/* Fill the weights with random numbers of a sensible size instead (--load-format dummy). Local. */
void load_dummy(struct network *n, const struct ops *ops, struct queue *q, uint64_t seed);

/* "together", "alone": the way that was used. */
const char *load_way_name(const struct load_report *r);

/* "window", "reading", .. */
const char *load_part_name(enum load_part part);

/* The rate of every host, for people: one line "node1 read 16.06 GB in 2.51 s, 6.40 GB/s" each. Rank 0 gets n lines of
 * `bytes` in *text (it frees), at most as many as there are hosts, and their number; 0 elsewhere. Collective. */
int load_hosts(char **text, size_t bytes, const struct load_stats *stats, struct world *w, struct err *e);

#endif
