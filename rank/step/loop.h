/* rank/step/loop.h - broadcasts rank 0's plans, executes them on every rank, and returns the tokens to rank 0. */
#ifndef STEP_LOOP_H
#define STEP_LOOP_H

#include "base/signals.h"
#include "rank/step/engine.h"

/* The functions that rank 0's coordinator provides. */
struct loop_client {
    void *context;
    /* Fill the (reset) plan: a step, or PLAN_STOP when all work is done. On a device this is called before the previous
     * step was accepted; a plan without sequences waits for that. Returns -1 and *e to end the job, or PLAN_IDLE after
     * a while without work and without a step in flight; it is then called again with the same plan. */
    int (*next)(void *context, struct plan *plan, struct err *e);
    /* Take a step's tokens. */
    int (*accept)(void *context, const struct step_result *result, struct err *e);
    /* Fill in the late masks of the newest plan, after the step before it was accepted. NULL: no plan has any. */
    void (*masks)(void *context, struct plan *plan);
    /* Another rank has received a signal (rank/watch/notice.h). NULL: ignored. */
    void (*signal)(void *context, enum signal_wish wish);
};

/* The models that are loaded, by the numbers that plans have for them. Equal on all ranks. */
struct loop_models {
    struct engine *ground;              /* provides the loop's world, device and observers; it may have no model */
    struct engine *engine[PLAN_MODELS]; /* NULL: none has this number */
    /* Execute a plan that is neither a step nor the end, while no step of its model is in flight (steps of other models
     * may be); it changes `engine`. Collective. NULL: there are no such plans. */
    void (*change)(void *context, const struct plan *plan);
    /* Called while this rank waits, for work beside steps. Local, does not block. NULL: none. */
    void (*poll)(void *context);
    void *context;
};

/* The same for models that are loaded and dropped. */
void loop_run_models(struct loop_models *models, const struct loop_client *client, struct err *e);

/* Run until PLAN_STOP. Collective; `client` is used on rank 0 only. Waiting ranks sleep. Failures end the job. */
void loop_run(struct engine *g, const struct loop_client *client, struct err *e);

/* Broadcast one plan from rank 0, waiting without spinning on a core; the other ranks unpack it into *p. Collective. */
void loop_share(struct plan *p, const struct world *w, int vocab);

#endif
