/* rank/step/persistent_sums.h - the memory of the ranks' devices for the sums of persistent steps
 * (kernels/persistent.h), opened once for all models that a set of ranks may hold at once: each has a slot in it, large
 * enough for any model. So models are loaded and dropped without opening or closing shared memory. */
#ifndef STEP_PERSISTENT_SUMS_H
#define STEP_PERSISTENT_SUMS_H

#include "kernels/persistent.h"
#include "rank/comm/peers.h"

struct persistent_sums {
    int n_places;
    size_t place_bytes;
    void *memory;        /* this rank's, [n_places][place_bytes]; NULL: none, or a single rank, which needs none */
    struct peers peers;  /* all ranks' */
    const char *why_not; /* NULL; otherwise the reason why no step of several ranks can be persistent, as the end of
                            a sentence */
};

/* A slot, for a step. */
struct persistent_place {
    void *memory[PEER_MAX_RANKS]; /* each rank's slot, as mapped by this one; NULL: a single rank, whose step has its
                                     own */
    const char *why_not;
};

/* Collective; -1 and *e on ranks without memory: the caller has to agree. */
int persistent_sums_open(struct persistent_sums *s, int n_places, const struct world *w, const struct ops *ops,
                         struct queue *q, struct err *e);
/* place: below n_places. It may be reused once all ranks have finished the steps of the previous model. */
struct persistent_place persistent_sums_place(const struct persistent_sums *s, int place);
/* No step may have a slot. Collective. Safe on a zeroed struct. */
void persistent_sums_close(struct persistent_sums *s, const struct world *w, const struct ops *ops, struct queue *q);

#endif
