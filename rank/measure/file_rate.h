/* rank/measure/file_rate.h - how fast a rank reads a sample of the checkpoint's files. Local. */
#ifndef MEASURE_FILE_RATE_H
#define MEASURE_FILE_RATE_H

#include "base/err.h"
#include "partition/checkpoint.h"

struct file_rate {
    double bytes, cold_bytes, seconds; /* cold_bytes: of them, not in the page cache when reading began */
};

/* Read part `rank` of n_ranks of a sample of the checkpoint: at most max_bytes per rank, in requests of 8 MiB spread
 * over all files, by n_threads threads, for up to `limit` seconds. The sample is dropped from the page cache first;
 * pages that stay there (files in memory, pages that others use) count as warm. */
int file_rate_measure(struct file_rate *f, const struct checkpoint *c, int rank, int n_ranks, double max_bytes,
                      int n_threads, double limit, struct err *e);

#endif
