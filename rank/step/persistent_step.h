/* rank/step/persistent_step.h - whole decode steps as one operation (kernels/persistent.h): the network in the form of
 * that operation, and the memory that the ranks' devices share for it. */
#ifndef STEP_PERSISTENT_STEP_H
#define STEP_PERSISTENT_STEP_H

#include "plan/plan.h"
#include "rank/model/network.h"
#include "rank/step/persistent_sums.h"
#include "rank/world/world.h"

/* With latent attention, sequences of more tokens than this are faster as separate operations (measured). */
#define LATENT_LONGEST 4096

struct persistent_step {
    void *step; /* of ops->persistent; NULL: there is none */
    int max_tokens;
    int longest;       /* sequences of up to this many tokens are faster this way; 0: all */
    bool several;      /* a step may have several consecutive tokens of a sequence */
    char why_not[128]; /* reason why it is not available for this model and these devices; rank 0 also has other
                          ranks' reasons */
    struct persistent_model *model; /* the network in the form that the operation takes */
    const char *refused;            /* this rank's own reason, or NULL */
    bool lent;                      /* the memory for sums is a borrowed slot */
    struct persistent_place place;
    struct peers peers; /* the ranks' memory for sums, unless it is lent */
};

/* Open it if the backend and this rank support it, with borrowed memory for sums or (NULL) its own. With drafts
 * (limits) steps may have several tokens of a sequence. The network must not move. Any thread, with its own queue, for
 * which it waits; local; -1 and *e without memory. */
int persistent_step_prepare(struct persistent_step *p, const struct network *n, const struct limits *l,
                            const struct world *w, const struct persistent_place *lent, const struct ops *ops,
                            struct queue *q, struct err *e);
/* Then connect the ranks, on the queue that steps will use, if all of them support it; otherwise p->step is NULL on all
 * ranks and p->why_not has the reason. Collective. */
void persistent_step_join(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q);
/* Collective, unless its memory for sums is lent: no rank may free memory to which another device still writes. */
void persistent_step_close(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q);

#endif
