/* commands/bench/bench.h - `lockstep bench`: prefill, decode, latency and throughput of all ranks together, beside the
 * read bandwidth of the machine. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "commands/bench/bench_options.h"
#include "rank/world/world.h"

/* Runs the whole command. Collective; prints on rank 0. Returns the exit status. */
int bench_run(struct world *w, const struct bench_options *o, struct err *e);

#endif
