/* commands/bench/durations.h - percentiles from a logarithmic histogram of times. Pure. */
#ifndef BENCH_DURATIONS_H
#define BENCH_DURATIONS_H

#include <stdint.h>

#define DURATIONS_BINS 2304 /* bins, each 1 % above the preceding: from a microsecond to two hours */

/* Zeroed: empty. */
struct durations {
    uint64_t n, bin[DURATIONS_BINS];
    double sum, highest; /* s */
};

/* seconds >= 0 */
void durations_add(struct durations *h, double seconds);

/* Adds all times of other to h. */
void durations_merge(struct durations *h, const struct durations *other);

/* The quantile `share` (0 to 1), within half a per cent; 0 if there are no times. */
double durations_at(const struct durations *h, double share);

double durations_mean(const struct durations *h);

#endif
