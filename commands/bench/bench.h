/* commands/bench/bench.h - `lockstep bench`: prefill, decode, latency and throughput of all ranks together, beside the read
 * bandwidth of the machine. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "commands/bench/bench_options.h"
#include "plan/plan.h"
#include "rank/world/world.h"

/* The functions that main supplies for --throughput: requests and the scheduler that serves them, which this folder
 * does not know. All functions return -1 and *e on failure. Used on rank 0 only. */
struct bench_traffic {
    void *context;
    /* n_requests of n_input random tokens that get n_output tokens each, under these limits. close may always follow. */
    int (*open)(void *context, int n_requests, int n_input, int n_output, const struct limits *l, int vocab,
                struct err *e);
    void (*close)(void *context);
    /* Queue all of them. Is one waiting or running? */
    int (*queue)(void *context, struct err *e);
    bool (*busy)(void *context);
    /* The next step of them, which may be empty while results are outstanding; and a step's results. */
    int (*plan)(void *context, struct plan *p, struct err *e);
    int (*accept)(void *context, const struct step_result *result, struct err *e);
};

/* Run the whole command. Collective; prints on rank 0. Returns the exit status. */
int bench_run(struct world *w, const struct bench_options *o, const struct bench_traffic *traffic, struct err *e);

#endif
