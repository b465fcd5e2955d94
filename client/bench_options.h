/* client/bench_options.h - options of `bench`. */
#ifndef CLIENT_BENCH_OPTIONS_H
#define CLIENT_BENCH_OPTIONS_H

#include "client/call_options.h"

#include <stdbool.h>
#include <stdint.h>

/* Strings are borrowed from argv or the environment. */
struct client_bench_options {
    struct call_options call;
    int64_t num_prompts, input_len, output_len, seed, warmups, progress;
    int64_t max_concurrency;          /* 0: not limited */
    double request_rate, range_ratio; /* requests a second, INFINITY: all at once */
    double temperature;
    const char *dataset;
    bool ignore_eos, json;
};

extern const struct opt_rows client_bench_rows;

/* Checks the options together, and sets the lengths that were not given. ERR_USAGE. */
int client_bench_finish(struct client_bench_options *o, struct err *e);

#endif
