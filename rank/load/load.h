/* rank/load/load.h - bring the checkpoint's bytes to the device: the ranks of a node read each byte once, together; or,
 * where the files lie in memory, each rank what it holds. */
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
    int32_t n_threads; /* that read */
    int32_t n_slots;   /* blocks of the window: being read, and copied out of */
    /* Size of one request if several threads read; for ranks that read alone: of a block, which is one request or one
     * per row. */
    int64_t piece_bytes;
};

/* How a rank's main thread spends its time while weights are loaded; it shows what is slow. */
enum load_part {
    LOAD_WINDOW,  /* making the window, and pinning it */
    LOAD_READING, /* waiting for blocks of its own to be read */
    LOAD_DEVICE,  /* waiting for the device to have copied */
    LOAD_RANKS,   /* waiting for the node's other ranks */
    LOAD_PLACING, /* copying into place, or telling the device to */
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
    double bus_rate, bus_share;    /* the lowest of each: bus_rate as above, device_rate / bus_rate; 0: not measured */
    double peak_host_bytes;        /* the largest */
    double part[N_LOAD_PARTS];     /* s, means over the ranks */
    struct load_setup setup;       /* as it was done on this rank */
};

/* Rank 0 has opened *m and *c; the others get copies. Collective; no file is touched. The caller closes c
 * everywhere. -1 on all ranks if one of them lacks memory, with *e where it does. */
int load_share_headers(struct model_config *m, struct checkpoint *c, struct world *w, struct err *e);

/* Fill the network's weights from the checkpoint. Collective over all ranks; a failure on one of them is reported on
 * that rank, and to the others by the caller's agreement afterwards. with_bus (equal on all ranks): measure the bus
 * to the device first, with up to 1 GiB a rank. *setup (equal on all ranks but for the threads): defaults are filled
 * in. */
int load_weights(struct network *n, const struct checkpoint *c, struct world *w, const struct ops *ops, struct queue *q,
                 struct load_setup *setup, enum progress_mode progress, bool with_bus, struct load_stats *stats,
                 struct err *e);

/* A rank's loads beside steps. */
struct load_side {
    struct window window; /* stays open for the next load */
    /* Steps of other models so far: whoever submits them writes it. While it grows the device is left to them a part of
     * the time. */
    atomic_ulong n_steps;
};

/* The same of this rank alone, on any thread, beside steps: without a word to other ranks, of whose failures nothing
 * is heard. The queue is the thread's own. Once *cancel is true it fails soon. Local. */
int load_beside(struct network *n, const struct checkpoint *c, const struct world *w, const struct ops *ops,
                struct queue *q, struct load_side *side, struct load_setup *setup, const atomic_bool *cancel,
                struct load_stats *stats, struct err *e);

/* Put the ranks' figures together. Collective. */
void load_report(const struct network *n, const struct load_stats *stats, const struct world *w, struct load_report *r);

/* Fill them with noise of a sensible size instead (--load-format dummy). Local. */
void load_dummy(struct network *n, const struct ops *ops, struct queue *q, uint64_t seed);

/* "together", "alone": how it was done. */
const char *load_way_name(const struct load_report *r);

/* "window", "reading", .. */
const char *load_part_name(enum load_part part);

/* The rate of every host, for people: "node1 read 16.06 GB in 2.51 s, 6.40 GB/s" a line. Rank 0 gets n lines of `bytes`
 * in *text (it frees), at most as many as there are hosts, and their number; 0 elsewhere. Collective. */
int load_hosts(char **text, size_t bytes, const struct load_stats *stats, struct world *w, struct err *e);

#endif
