/* rank/step/persistent_step.h - whole decode steps as one operation (kernels/persistent.h): the network in the form of
 * that operation, and the memory that the ranks' devices share for it. */
#ifndef STEP_PERSISTENT_STEP_H
#define STEP_PERSISTENT_STEP_H

#include "plan/plan.h"
#include "rank/model/network.h"
#include "rank/step/persistent_sums.h"
#include "rank/world/world.h"

/* Tokens of a sequence, of a model with latent attention: longer ones are faster as separate operations, as
 * measured. */
#define LATENT_LONGEST 4096

struct persistent_step {
    void *step; /* of ops->persistent; NULL: there is none */
    int max_tokens;
    int longest;                    /* tokens of a sequence up to which it is the faster way; 0: always */
    bool several;                   /* of a sequence there may be several tokens in a step, one after the other */
    char why_not[128];              /* this model, these devices cannot; on rank 0 also when another rank cannot */
    struct persistent_model *model; /* the network as the operation wants it */
    const char *refused;            /* this rank's own reason; NULL: it has none */
    bool lent;                      /* the memory for sums is a place */
    struct persistent_place place;
    struct peers peers; /* each other's memory for sums, unless it is lent */
};

/* Open it where the backend has it and this rank can, with memory for sums that is lent, or (NULL) of its own. With
 * drafts (limits) steps may have several tokens of a sequence. The network must stay where it is. Any thread, with a
 * queue of its own that it waits for; local; -1 and *e where memory is missing. */
int persistent_step_prepare(struct persistent_step *p, const struct network *n, const struct limits *l,
                            const struct world *w, const struct persistent_place *lent, const struct ops *ops,
                            struct queue *q, struct err *e);
/* Then, on the queue that steps will have, connect the ranks, if all of them can; else p->step is NULL on all ranks
 * alike and p->why_not says why. Collective. */
void persistent_step_join(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q);
/* Collective, unless its memory for sums is lent: nobody's memory may go while another device still writes to it. */
void persistent_step_close(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q);

#endif
