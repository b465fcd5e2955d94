/* rank/loop.h - rank 0's plans go out, every rank executes them, the tokens come back to rank 0. */
#ifndef RANK_LOOP_H
#define RANK_LOOP_H

#include "rank/engine.h"

/* What rank 0 plugs in: the coordinator, seen as two functions. */
struct loop_client {
    void *context;
    /* Fill the (reset) plan: a step, or PLAN_STOP when all work is done. On a device this comes before the step before it
     * was accepted; a plan without sequences waits for that. Returns -1 and *e to end the job. */
    int (*next)(void *context, struct plan *plan, struct err *e);
    /* Take a step's tokens. */
    int (*accept)(void *context, const struct step_result *result, struct err *e);
};

/* Run until PLAN_STOP. Collective; `client` is used on rank 0 only. Waiting ranks sleep. Failures end the job. */
void loop_run(struct engine *g, const struct loop_client *client, struct err *e);

/* One plan from rank 0 to everybody, waiting without burning a core; on the other ranks *p is unpacked. Collective. */
void loop_share(struct plan *p, const struct world *w, int vocab);

#endif
