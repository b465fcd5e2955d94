/* commands/run/bench.h - `lockstep bench` on all ranks: of one model, or of two in turn. */
#ifndef RUN_BENCH_H
#define RUN_BENCH_H

#include "commands/bench/bench_options.h"
#include "rank/world/world.h"

/* Returns the exit status; a failure ends the job. o: of rank 0. Collective. */
int run_bench(struct world *w, const struct bench_options *o, struct err *e);

#endif
