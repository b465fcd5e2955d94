/* commands/models/model_switch.h - `lockstep bench --model-switch A,B`: from a request for a model to its first token,
 * where the other one is loaded and has to go, as `serve --models-dir` does it. */
#ifndef MODELS_MODEL_SWITCH_H
#define MODELS_MODEL_SWITCH_H

#include "commands/bench/bench_options.h"
#include "rank/world/world.h"

/* Collective; o is used on rank 0 only. Returns the exit status. */
int model_switch_run(struct world *w, const struct bench_options *o, struct err *e);

#endif
