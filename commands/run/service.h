/* commands/run/service.h - `lockstep serve` and `lockstep batch` on all ranks: replicas, the links to their leaders,
 * the loop. Rank 0 has the source of requests (commands/serve.h, commands/batch.h). */
#ifndef RUN_SERVICE_H
#define RUN_SERVICE_H

#include "coordinator/batch/batch_options.h"
#include "coordinator/server/serve_options.h"
#include "rank/world/world.h"

/* Both return the exit status; a failure ends the job. o: of rank 0. Collective. */
int run_serve(struct world *w, const struct serve_options *o, struct err *e);
int run_batch(struct world *w, const struct batch_options *o, struct err *e);

#endif
