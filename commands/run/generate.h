/* commands/run/generate.h - `lockstep generate` on all ranks. */
#ifndef RUN_GENERATE_H
#define RUN_GENERATE_H

#include "commands/generate_options.h"
#include "rank/world/world.h"

/* Returns the exit status; a failure ends the job. o: of rank 0. Collective. */
int run_generate(struct world *w, const struct generate_options *o, struct err *e);

#endif
