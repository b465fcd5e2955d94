/* commands/models/generate_models.h - `lockstep generate --model-switch A,B,...`: the prompts go to one model after the
 * other in one job, and the time that each switch takes is shown at the end. */
#ifndef MODELS_GENERATE_MODELS_H
#define MODELS_GENERATE_MODELS_H

#include "commands/generate_options.h"
#include "rank/world/world.h"

/* Collective; o is used on rank 0 only. Returns the exit status. */
int generate_models(struct world *w, const struct generate_options *o, struct err *e);

#endif
