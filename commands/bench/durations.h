/* commands/bench/durations.h - percentiles of more times than are kept. Pure. */
#ifndef BENCH_DURATIONS_H
#define BENCH_DURATIONS_H

#include <stdint.h>

#define DURATIONS_BINS 2304 /* each 1 % above the one before: from a microsecond to two hours */

/* Zeroed: empty. */
struct durations {
    uint64_t n, bin[DURATIONS_BINS];
    double sum, highest; /* s */
};

/* seconds >= 0 */
void durations_add(struct durations *h, double seconds);

/* All times of other are in h, too. */
void durations_merge(struct durations *h, const struct durations *other);

/* The time that a share (0 to 1) of all does not exceed, within half a per cent; 0 where there is none. */
double durations_at(const struct durations *h, double share);

double durations_mean(const struct durations *h);

#endif
