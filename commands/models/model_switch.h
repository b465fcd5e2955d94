/* commands/models/model_switch.h - `lockstep bench --model-switch A,B`: measures the time from a request for a model to
 * its first token, while the other one is loaded and must be dropped, as in `serve --models-dir`. */
#ifndef MODELS_MODEL_SWITCH_H
#define MODELS_MODEL_SWITCH_H

#include "commands/bench/bench_options.h"
#include "rank/world/world.h"

/* Collective; o is used on rank 0 only. Returns the exit status. */
int model_switch_run(struct world *w, const struct bench_options *o, struct err *e);

#endif
