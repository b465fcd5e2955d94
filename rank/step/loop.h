/* rank/step/loop.h - rank 0's plans go out, every rank executes them, the tokens come back to rank 0. */
#ifndef STEP_LOOP_H
#define STEP_LOOP_H

#include "base/signals.h"
#include "rank/step/engine.h"

/* The functions that rank 0 supplies: its view of the coordinator. */
struct loop_client {
    void *context;
    /* Fill the (reset) plan: a step, or PLAN_STOP when all work is done. On a device this comes before the step
     * before it was accepted; a plan without sequences waits for that. Returns -1 and *e to end the job, or
     * PLAN_IDLE: there is nothing to do and no step under way, and it has waited for a while. It is called again
     * then, with the same plan. */
    int (*next)(void *context, struct plan *plan, struct err *e);
    /* Take a step's tokens. */
    int (*accept)(void *context, const struct step_result *result, struct err *e);
    /* Fill in the late masks of the newest plan, after the step before it was accepted. NULL: no plan has any. */
    void (*masks)(void *context, struct plan *plan);
    /* Another rank has got a signal (rank/watch/notice.h). NULL: it does not matter. */
    void (*signal)(void *context, enum signal_wish wish);
};

/* The models that are loaded, by the numbers that plans have for them. Equal on all ranks. */
struct loop_models {
    struct engine *ground;              /* gives the loop its world, device and observers; it may hold no model */
    struct engine *engine[PLAN_MODELS]; /* NULL: none has this number */
    /* A plan that is neither a step nor the end: executed between the steps of its model, none of which is under way,
     * while one of another model may be; it changes `engine`. Collective. NULL: there are none. */
    void (*change)(void *context, const struct plan *plan);
    /* While this rank waits: what goes on beside steps. Local, does not wait. NULL: nothing does. */
    void (*poll)(void *context);
    void *context;
};

/* The same for models that come and go. */
void loop_run_models(struct loop_models *models, const struct loop_client *client, struct err *e);

/* Run until PLAN_STOP. Collective; `client` is used on rank 0 only. Waiting ranks sleep. Failures end the job. */
void loop_run(struct engine *g, const struct loop_client *client, struct err *e);

/* One plan from rank 0 to everybody, waiting without burning a core; on the other ranks *p is unpacked. Collective. */
void loop_share(struct plan *p, const struct world *w, int vocab);

#endif
