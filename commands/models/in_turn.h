/* commands/models/in_turn.h - a job whose models take turns in the same slots, requested by name: `generate` and
 * `bench` with --model-switch. */
#ifndef MODELS_IN_TURN_H
#define MODELS_IN_TURN_H

#include "base/run_options.h"
#include "commands/models/changeover.h"
#include "rank/world/world.h"

struct in_turn {
    const struct run_options *run; /* used on rank 0 only, as are the following */
    struct changeover *changeover;
    struct loop_client client; /* its context is that of the functions below, too */
    /* Checks the options, opens the changeover, finds the models. */
    int (*open)(void *context, int n_ranks, struct err *e);
    /* After the last step. device: the name of rank 0's. */
    void (*report)(void *context, const char *device, int n_ranks, struct err *e);
    /* After the ranks have dropped their models. */
    void (*close)(void *context);
};

/* *e is a failure so far, of any rank; every failure ends the job. Collective. */
void in_turn_run(struct world *w, const struct in_turn *job, struct err *e);

#endif
