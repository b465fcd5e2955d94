/* client/bench_figures.h - statistics of request times, by the definitions of vLLM's `bench serve`
 * (vllm/benchmarks/serve.py, calculate_metrics):
 *
 *   TTFT  from sending a request to its first event with tokens
 *   ITL   every gap between two events of a request
 *   E2EL  from sending a request to its last event with tokens
 *   TPOT  (E2EL - TTFT) / (output tokens - 1), of requests with more than one
 *
 * Only requests that succeeded count. Percentiles interpolate linearly between the two nearest values, as numpy's do;
 * the standard deviation is that of the whole population. Pure arithmetic. */
#ifndef CLIENT_BENCH_FIGURES_H
#define CLIENT_BENCH_FIGURES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* One request. Times in seconds on one clock. */
struct bench_times {
    bool succeeded;
    int64_t n_input, n_output; /* tokens */
    double sent;
    double *event; /* [n_events] when tokens came, ascending */
    int64_t n_events, capacity;
};

struct bench_spread { /* milliseconds; all 0 when there is nothing */
    double mean, deviation, p50, p90, p99;
};

struct bench_figures {
    int64_t completed, failed, total_input, total_output;
    double seconds;
    double requests_per_s, output_per_s, tokens_per_s; /* tokens: input and output */
    double peak_output_per_s;                          /* events in the best second since the first request */
    int64_t peak_concurrent;
    struct bench_spread ttft, tpot, itl, e2el;
};

/* Note an event. */
int bench_times_add(struct bench_times *t, double now, struct err *e);

/* seconds: duration of the whole measurement. ERR_MEMORY. */
int bench_figures(struct bench_figures *f, const struct bench_times *t, int64_t n, double seconds, struct err *e);

/* The quantile q in [0, 1] of ascending values; 0 if there are none. */
double bench_percentile(const double *ascending, int64_t n, double q);

#endif
