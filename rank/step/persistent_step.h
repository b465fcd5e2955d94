/* rank/step/persistent_step.h - whole decode steps as one operation (kernels/persistent.h): the network in the form of
 * that operation, and the memory that the ranks' devices share for it. */
#ifndef STEP_PERSISTENT_STEP_H
#define STEP_PERSISTENT_STEP_H

#include "kernels/persistent.h"
#include "rank/comm/peers.h"
#include "rank/model/network.h"
#include "rank/world/world.h"

struct persistent_step {
    void *step; /* of ops->persistent; NULL: there is none */
    int max_tokens;
    bool several;                   /* of a sequence there may be several tokens in a step, one after the other */
    char why_not[128];              /* this model, these devices cannot; on rank 0 also when another rank cannot */
    struct persistent_model *model; /* the network as the operation wants it */
    struct peers peers;             /* each other's memory for sums */
};

/* Open it where the backend has it and all ranks can; else p->step is NULL on all ranks alike and p->why_not says why.
 * The network must stay where it is. Collective; memory that is missing is an error, to be agreed on. */
int persistent_step_open(struct persistent_step *p, const struct network *n, const struct world *w,
                         const struct ops *ops, struct queue *q, struct err *e);
/* Collective: nobody's memory may go while another device still writes to it. */
void persistent_step_close(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q);

#endif
