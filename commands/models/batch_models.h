/* commands/models/batch_models.h - `lockstep batch --models-dir`: lines that name their models. */
#ifndef MODELS_BATCH_MODELS_H
#define MODELS_BATCH_MODELS_H

#include "coordinator/batch/batch_options.h"
#include "rank/world/world.h"

struct batch_run;

/* Collective; b and o are used on rank 0 only. Returns the exit status. */
int batch_models(struct world *w, struct batch_run *b, const struct batch_options *o, struct err *e);

#endif
