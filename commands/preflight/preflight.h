/* commands/preflight/preflight.h - `lockstep preflight`, and a short one at start with --preflight: is every node fit
 * for the job? All ranks measure the same things in the same order, in some seconds; rank 0 judges, and all get its
 * verdict. */
#ifndef PREFLIGHT_PREFLIGHT_H
#define PREFLIGHT_PREFLIGHT_H

#include "base/run_options.h"
#include "rank/world/world.h"

/* The command: a table or JSON on rank 0's standard output. A node that is not fit ends the job with ERR_PREFLIGHT, in
 * the name of its rank. Collective; returns the exit status. */
int preflight_run(struct world *w, const struct run_options *o, struct err *e);

/* At start: one line on standard error, and the same end. No-op unless rank 0's options have --preflight.
 * Collective. */
void preflight_start(struct world *w, const struct run_options *o, struct err *e);

#endif
