/* rank/instance/residents_parts.h - shared by the parts of the residents: a model being loaded (residents_loading.c),
 * and one being freed (residents_leaving.c). */
#ifndef INSTANCE_RESIDENTS_PARTS_H
#define INSTANCE_RESIDENTS_PARTS_H

#include "rank/instance/residents.h"

#include <stdatomic.h>

/* A model that is being loaded. */
struct loading {
    int model;
    struct instance *instance;
    struct instance_setup setup;
    struct model_config config;
    struct checkpoint checkpoint;
    struct residents *all;
    pthread_t thread;
    bool running;
    atomic_bool cancel, done; /* done: the thread has finished */
    struct load_stats stats;
    struct load_phases phases;
    struct err why; /* owned by the thread until it is done */
    bool told;      /* this rank has reported, or (rank 0) all ranks have and its owner was informed */
    MPI_Request *request;
    struct err *said; /* rank 0: [n_ranks] by each; others: [1] */
    int n_requests;
};

/* A model that is being freed. */
struct leaving {
    int model;
    struct instance *instance;
    struct residents *all;
    pthread_t thread;
    bool running, told;         /* told: this rank has reported */
    atomic_bool done;           /* the thread has finished */
    bool freed;                 /* it has freed the memory */
    double seconds;             /* recording time since the last report */
    int64_t free_before, grown; /* bytes of the device that were free before, and that are free again */
    MPI_Request *request;       /* [ranks] messages to rank 0 */
};

static inline void residents_tell(struct residents *r, struct residents_news news)
{
    if (r->world->rank == 0)
        r->owner.hear(r->owner.context, &news);
}

/* Starts the thread of l, and on rank 0 the receives of all ranks' reports. -1 on all ranks, with equal *e, if it
 * cannot be started. Collective. */
int loading_start(struct loading *l, struct err *e);
/* Waits until the thread has ended. */
void loading_wait(struct loading *l);
/* Sends this rank's report; rank 0 sends nothing. */
void loading_tell(struct loading *l);
/* To be called while a rank waits: reports, or (rank 0) receives reports. Local, does not block. */
void loading_poll(struct residents *r);
/* Ends r->loading, except its instance, which the caller then owns. */
void loading_close(struct residents *r);

/* No step of model's instance follows; its memory is freed beside the steps of others. Collective. */
void leaving_start(struct residents *r, int model, struct instance *i);
/* To be called while a rank waits. Local, does not block. */
void leaving_poll(struct residents *r);
/* Waits until model is gone; on rank 0, on all ranks. */
void leaving_finish(struct residents *r, int model);

#endif
