/* commands/models/many.h - a job of many models on all ranks: ground, loop, what comes and goes. The front decides
 * where requests come from (commands/models/fleet.h). */
#ifndef MODELS_MANY_H
#define MODELS_MANY_H

#include "commands/models/fleet.h"
#include "rank/world/world.h"

/* Refuse options of a run that are for one model, where `option` names several. Rank 0. */
int many_check_run(const struct run_options *run, const char *option, struct err *e);

/* Do options for several models go together? Rank 0. */
int many_check(const struct service_options *service, const struct models_options *models, const struct world *w,
               struct err *e);

/* Returns the exit status; a failure ends the job. setup: of rank 0, where all of it was checked, or *e. Collective. */
int many_run(struct world *w, const struct fleet_setup *setup, struct err *e);

#endif
