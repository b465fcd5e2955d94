/* rank/step/persistent_sums.h - the memory of the ranks' devices for the sums of persistent steps
 * (kernels/persistent.h), opened once for all models that a set of ranks may hold at once: each has a place in it,
 * which is large enough for any model. So models come and go without anything that devices share being opened or
 * closed. */
#ifndef STEP_PERSISTENT_SUMS_H
#define STEP_PERSISTENT_SUMS_H

#include "kernels/persistent.h"
#include "rank/comm/peers.h"

struct persistent_sums {
    int n_places;
    size_t place_bytes;
    void *memory;        /* this rank's, [n_places][place_bytes]; NULL: there is none, and one rank needs none */
    struct peers peers;  /* all ranks' */
    const char *why_not; /* NULL; else no step of several ranks can be persistent, as the end of a sentence */
};

/* A place, as a step needs it. */
struct persistent_place {
    void *memory[PEER_MAX_RANKS]; /* on each rank, as this one reaches it; NULL: one rank, whose step has its own */
    const char *why_not;
};

/* Collective; -1 and *e where memory is missing: to be agreed on. */
int persistent_sums_open(struct persistent_sums *s, int n_places, const struct world *w, const struct ops *ops,
                         struct queue *q, struct err *e);
/* place: below n_places. A model that has it again comes when all ranks have ended the steps of the one before. */
struct persistent_place persistent_sums_place(const struct persistent_sums *s, int place);
/* No step with a place is open. Collective. Safe on a zeroed struct. */
void persistent_sums_close(struct persistent_sums *s, const struct world *w, const struct ops *ops, struct queue *q);

#endif
