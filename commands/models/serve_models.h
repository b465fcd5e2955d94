/* commands/models/serve_models.h - `lockstep serve --models-dir`: many models in one job. */
#ifndef MODELS_SERVE_MODELS_H
#define MODELS_SERVE_MODELS_H

#include "coordinator/server/serve_options.h"
#include "rank/world/world.h"

/* Collective; o is used on rank 0 only. Returns the exit status. */
int serve_models(struct world *w, const struct serve_options *o, struct err *e);

#endif
