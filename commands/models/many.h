/* commands/models/many.h - a job of many models on all ranks: set-up, loop, loading and unloading. The front is the
 * source of requests (commands/models/fleet.h). */
#ifndef MODELS_MANY_H
#define MODELS_MANY_H

#include "commands/models/fleet.h"
#include "rank/world/world.h"

/* Refuses a run's options that are for one model only, if `option` names several. Rank 0. */
int many_check_run(const struct run_options *run, const char *option, struct err *e);

/* Are the options for several models consistent? Rank 0. */
int many_check(const struct service_options *service, const struct models_options *models, const struct world *w,
               struct err *e);

/* Returns the exit status; a failure ends the job. setup: of rank 0, where all of it was checked, or *e. Collective. */
int many_run(struct world *w, const struct fleet_setup *setup, struct err *e);

#endif
