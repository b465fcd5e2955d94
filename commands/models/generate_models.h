/* commands/models/generate_models.h - `lockstep generate --model-switch A,B,...`: sends the prompts to one model after
 * the other in one job, and prints the time of each switch at the end. */
#ifndef MODELS_GENERATE_MODELS_H
#define MODELS_GENERATE_MODELS_H

#include "commands/generate_options.h"
#include "rank/world/world.h"

/* Collective; o is used on rank 0 only. Returns the exit status. */
int generate_models(struct world *w, const struct generate_options *o, struct err *e);

#endif
