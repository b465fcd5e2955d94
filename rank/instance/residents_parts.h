/* rank/instance/residents_parts.h - what the parts of the residents share: a model on its way in (residents_loading.c),
 * and one on its way out (residents_leaving.c). */
#ifndef INSTANCE_RESIDENTS_PARTS_H
#define INSTANCE_RESIDENTS_PARTS_H

#include "rank/instance/residents.h"

#include <stdatomic.h>

/* One model on its way in. */
struct loading {
    int model;
    struct instance *instance;
    struct instance_setup setup;
    struct model_config config;
    struct checkpoint checkpoint;
    struct residents *all;
    pthread_t thread;
    bool running;
    atomic_bool cancel, done; /* done: the thread has nothing more to do */
    struct load_stats stats;
    struct load_phases phases;
    struct err why; /* the thread's, until it is done */
    bool told;      /* this rank has told, or (rank 0) has heard all and told its owner */
    MPI_Request *request;
    struct err *said; /* rank 0: [n_ranks] by each; others: [1] */
    int n_requests;
};

/* One model on its way out. */
struct leaving {
    int model;
    struct instance *instance;
    struct residents *all;
    pthread_t thread;
    bool running, told;         /* told: this rank has told */
    atomic_bool done;           /* the thread has nothing more to do */
    bool freed;                 /* it has freed the memory */
    double seconds;             /* of what was recorded since it was reported last */
    int64_t free_before, grown; /* bytes of the device that were free before, and that are free again */
    MPI_Request *request;       /* [ranks] of words to rank 0 */
};

static inline void residents_tell(struct residents *r, struct residents_news news)
{
    if (r->world->rank == 0)
        r->owner.hear(r->owner.context, &news);
}

/* The thread of l begins to read, and rank 0 to wait for the word of each rank that has read. -1: it does not, on any
 * rank, with *e equal on all. Collective. */
int loading_start(struct loading *l, struct err *e);
/* Until the thread has ended. */
void loading_wait(struct loading *l);
/* This rank's word; on rank 0 nothing is sent. */
void loading_tell(struct loading *l);
/* While a rank waits: tell, or (rank 0) hear. Local, does not wait. */
void loading_poll(struct residents *r);
/* Ends r->loading, but for its instance, which is the caller's. */
void loading_close(struct residents *r);

/* From here on no step of the instance, which is model's, comes; its memory is given back beside the steps of others.
 * Collective. */
void leaving_start(struct residents *r, int model, struct instance *i);
/* While a rank waits. Local, does not wait. */
void leaving_poll(struct residents *r);
/* Waits until model is gone; on rank 0, on all ranks. */
void leaving_finish(struct residents *r, int model);

#endif
