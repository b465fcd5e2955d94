/* rank/load/load_together.h - the ranks of a node read each byte once, in large requests, for all of them. */
#ifndef LOAD_LOAD_TOGETHER_H
#define LOAD_LOAD_TOGETHER_H

#include "rank/load/loader.h"
#include "rank/load/reader.h"

struct together {
    struct loader *l; /* borrowed */
    const struct world *w;
    struct reader reader;
    int released; /* rounds */
    MPI_Win window;
    size_t slot_bytes;
    unsigned char **base; /* [n_node_ranks] each rank's part of the window: its header, then its slots */
    bool registered;      /* with the device, for copies at full speed */
};

/* Make the window for the loader's plan, which is the same on all ranks. Collective; together_run and together_close
 * are over the node. Lack of memory on a rank ends the job. */
void together_open(struct together *t, struct loader *l, struct world *w, struct err *e);

/* The beginning of this rank's slots, which are contiguous; *bytes: their size. */
unsigned char *together_memory(const struct together *t, size_t *bytes);

/* Load. After a failure on one rank the others end with their round, or where they next wait for each other. */
void together_run(struct together *t, struct err *e);

void together_close(struct together *t);

#endif
