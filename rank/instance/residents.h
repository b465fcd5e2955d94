/* rank/instance/residents.h - the models that this rank holds, each an instance on the common ground, loaded and
 * dropped by plans (plan/plan.h): PLAN_LOAD, PLAN_COMMIT or PLAN_HURRY, PLAN_ROLLBACK, PLAN_DROP. "All ranks" are those
 * that share the ground: of the job, or of a replica that is apart (rank/world/world.h), and rank 0 is the first of
 * them.
 *
 * On each rank a thread reads the model, beside the steps of others and without collectives. When it has finished, the
 * rank tells rank 0; when all have, rank 0 commits or rolls back by a plan. So all ranks see the change between the
 * same two steps, and a failure on one of them has the same result on all. Threads also free memory. Measurements of a
 * model's first load are kept for the next load of the same files. */
#ifndef INSTANCE_RESIDENTS_H
#define INSTANCE_RESIDENTS_H

#include "plan/load_phases.h"
#include "rank/instance/instance.h"
#include "rank/step/loop.h"

#include <pthread.h>

/* The events reported to rank 0's owner. */
enum residents_event {
    RESIDENTS_READ,    /* all ranks have read it: it may be committed */
    RESIDENTS_FAILED,  /* it could not be begun, read or completed; `held`: rank 0 has to roll it back */
    RESIDENTS_READY,   /* committed */
    RESIDENTS_LEAVING, /* dropped, or rolled back: no more steps of it follow */
    RESIDENTS_GONE     /* after that: its memory is free on all ranks */
};

/* Numbers beside an event. */
struct residents_news {
    enum residents_event event;
    int model;
    bool held;            /* FAILED: a rollback is needed */
    struct err why;       /* FAILED */
    struct limits limits; /* READY */
    int64_t free_before,
        freed; /* GONE: free bytes of this device before, and their growth, as the device reports them */
    /* READY: of this load, from LOAD_PHASE_BEGIN on. GONE: what was recorded since. */
    struct load_phases phases;
};

/* Rank 0's side; both are called by its main thread. */
struct residents_owner {
    void *context;
    /* Provides the data of a model about to be loaded. The residents then own *c. */
    void (*fetch)(void *context, int model, struct model_config *m, struct checkpoint *c, struct instance_setup *setup);
    void (*hear)(void *context, const struct residents_news *news);
};

/* A keeper of models' files, on any rank; both are NULL without one. Neither blocks. */
struct residents_files {
    void *context;
    void (*loaded)(void *context, int model, const struct checkpoint *c);
    void (*dropped)(void *context, int model);
};

struct loading;
struct leaving;

struct residents {
    struct world *world;     /* borrowed: of the ranks that hold them */
    struct instance *ground; /* borrowed */
    struct kv_arena arena;   /* keys and values of all */
    struct residents_owner owner;
    struct residents_files files;           /* set after residents_open */
    struct instance *resident[PLAN_MODELS]; /* NULL: the number is free */
    struct loading *loading;                /* NULL: nothing is being read */
    struct queue q;             /* queue of the thread that loads; on a device open from the first load on, */
    struct load_side side;      /* as is its window */
    struct leaving *leaving;    /* [PLAN_MODELS] */
    MPI_Request *gone;          /* [PLAN_MODELS] [ranks] theirs */
    pthread_mutex_t memory;     /* held while memory is allocated or freed beside steps */
    struct step_ways_book book; /* equal on all ranks, as plans and measurements are */
    struct loop_models models;  /* for loop_run_models */
};

/* Begins with no models and kv_bytes for keys and values, equal on all ranks. The residents must not move. Local. */
int residents_open(struct residents *r, struct world *w, struct instance *ground, size_t kv_bytes,
                   const struct residents_owner *owner, struct err *e);

/* Abandon the model that is being read, close all. No step may be under way. Collective. */
void residents_close(struct residents *r);

#endif
