/* commands/bench/spread.h - statistics of repeated measurements. Pure. */
#ifndef BENCH_SPREAD_H
#define BENCH_SPREAD_H

#define SPREAD_MOST          1000 /* samples */
#define SPREAD_N_PERCENTILES 6

extern const int spread_percentile[SPREAD_N_PERCENTILES];

/* Statistics of n samples, in their unit. */
struct spread {
    int n;
    double median, lowest, highest, mean, deviation; /* deviation: sample standard deviation, 0 for one sample */
    double at[SPREAD_N_PERCENTILES];                 /* linear between two samples, as in numpy */
};

/* n from 1 to SPREAD_MOST. */
struct spread spread_of(const double *sample, int n);

#endif
