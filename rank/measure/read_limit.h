/* rank/measure/read_limit.h - the rate at which all ranks together read their devices' memory: the limit of
 * decoding. */
#ifndef MEASURE_READ_LIMIT_H
#define MEASURE_READ_LIMIT_H

#include "kernels/ops.h"
#include "rank/world/world.h"

/* Bytes per second. */
struct read_limit {
    double together; /* of all ranks, in the best pass, which ends with its slowest rank; equal on all */
    double mine;     /* of this rank, in its own best pass */
};

/* The best of `passes` over up to most_bytes per rank, which should exceed every cache; a device with less free memory
 * uses half of that, and so on, but at least least_bytes. Collective; a rank without the memory ends the job. */
void read_limit_measure(struct read_limit *r, struct world *w, const struct ops *ops, struct queue *q,
                        size_t least_bytes, size_t most_bytes, int passes, struct err *e);

#endif
