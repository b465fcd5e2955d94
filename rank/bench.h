/* rank/bench.h - `lockstep bench`: prefill and decode, measured on every rank together, beside the read bandwidth. */
#ifndef RANK_BENCH_H
#define RANK_BENCH_H

#include "base/opt.h"
#include "rank/world.h"

/* Run the whole command. Collective; prints on rank 0. Returns the exit status. */
int bench_run(struct world *w, const struct options *o, struct err *e);

#endif
