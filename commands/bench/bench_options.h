/* commands/bench/bench_options.h - options of `bench`. */
#ifndef BENCH_BENCH_OPTIONS_H
#define BENCH_BENCH_OPTIONS_H

#include "base/run_options.h"

/* Strings are borrowed from argv or the environment. */
struct bench_options {
    double draft_acceptance; /* negative: not given */
    int32_t drafts_rest;     /* 0: always the maximum number of drafts; 1: as many as pay off */
    struct run_options run;
    const char *config, *quantization, *latency, *throughput, *tokenizer, *json_schema;
    const char *model_switch; /* two folders separated by a comma; NULL: one model is measured */
    const char *beside;       /* folder of a model that runs meanwhile; NULL: none */
    int64_t n_prompt, n_gen, n_depth, batch;
    int64_t repetitions, warmup, num_prompts, max_batch, shared_prefix; /* -1: not given */
    int64_t read_limit_bytes;                                           /* negative: not given */
    bool profile, step_times;
};

extern const struct opt_rows bench_rows;

#endif
