/* coordinator/models/models.h - the models of a job, as seen by the thread of rank 0 that hands out work (the server's
 * I/O thread, the batch thread): by name, with their state in each set of ranks (coordinator/deploy/) and, if loaded,
 * the means to generate text. A server of one model has a table of one, which is always ready. */
#ifndef MODELS_MODELS_H
#define MODELS_MODELS_H

#include "coordinator/deploy/placement.h"
#include "coordinator/models/opener.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/tasks/model_orders.h"

struct text_buffer;

/* The load of this process's host. */
struct host_figures {
    double gpu_memory, gpu_busy;  /* sums over its ranks' GPUs, each 0 to 1; NAN: unknown, or no GPUs */
    double disk;                  /* the used share of the models' file system; NAN: unknown */
    int64_t host_cache, archives; /* bytes of files of unloaded models in memory, of unpacked archives */
};
struct models_host {
    void *context;
    void (*look)(void *context, struct host_figures *f);
};

/* The thread that owns these models, and its functions for events. */
struct models_owner {
    void *context;
    void (*reports)(void *context);          /* process reports of replicas, which precede messages about a model */
    void (*running)(void *context);          /* the loop has begun */
    void (*admit)(void *context, int model); /* it is loaded: its waiters may enter */
    void (*refuse)(void *context, int model, const struct protocol_error *why);
    void (*unloaded)(void *context, int model);
    void (*signal)(void *context, enum signal_wish wish); /* of another rank */
    void (*ended)(void *context);                         /* the main threads have ended: no more messages come */
};

/* Several models; n 0: a single one, whose load has begun already. Borrowed. */
struct models_setup {
    int n;
    const char *const *name; /* [n] in ascending order of bytes */
    const bool *pinned;      /* [n] to be loaded at once, and kept */
    const int *n_replicas;   /* [n] sets of ranks that may have it at once */
    int n_sets;
    struct deploy_setup deploy; /* of each set */
    int64_t unit_bytes;         /* of the memory that models share for keys and values */
    struct models_source source;
    struct models_host host;
};

/* Counts of a model, under names of SageMaker's multi-model endpoints. */
struct model_counts {
    uint64_t invocations, hits; /* requests, and those that found their model loaded */
    uint64_t loads, unloads, failures;
    double waited, unpacking, loading, unloading; /* seconds: waits of requests; unpacking; loading; unloading */
    int64_t free_before, freed; /* free bytes before the last unloading, and their growth, as the device reports them */
    struct load_phases phases;  /* parts of `loading`, without later recordings */
};

/* A model on one set of ranks. */
struct model_copy {
    const struct served *served; /* NULL: it is not opened */
    void *handle;
    const char *dir; /* of the handle */
    double since;    /* its loading or unloading began */
    double opening;  /* seconds of the last opening, including the wait for the opener */
    struct warming { /* the requests that a model answers before it counts as loaded */
        const struct warmup *warmup;
        int n, at, turn;           /* their number; the next one, and its repetitions so far */
        double since;              /* seconds_now() */
        struct load_phases phases; /* of the load, until then */
    } warming;
};

struct models {
    struct models_setup setup;
    struct models_owner owner;
    struct replicas *replicas; /* borrowed: a slot for each model that may be loaded, per set */
    int n, n_slots;            /* n_slots: places of a set */
    struct model_entry {
        const char *name;
        struct model_copy *copy;   /* [n_sets] */
        struct protocol_error why; /* it failed last */
        struct json_t *made_of;    /* identity of the files it was last opened from; owned; NULL: not requested */
        struct model_counts counts;
    } * entry; /* [n] */
    struct placement placement;
    struct opener opener;
    struct models_control {
        void *end[2]; /* mailbox: the I/O thread's, and the main thread's in set 0, else the hub's */
        bool ended;   /* its main thread has */
    } * control;      /* [n_sets]; NULL: one model */
};

/* one: of a server that has one model. The replicas are open. */
int models_open(struct models *m, void *zmq_context, const struct models_setup *setup, const struct served *one,
                const struct models_owner *owner, struct replicas *replicas, struct err *e);
void models_close(struct models *m);

bool models_are_many(const struct models *m);

/* The model as requests see it, if it is opened for any set; NULL: it is not. */
const struct served *models_served(const struct models *m, int i);

/* The replica for a user of the model in this set, perhaps one in another set: chosen by replicas_choose, but not one
 * that is about to go, unless it is in this set, nor one opened from other files. */
int models_choose(const struct models *m, int i, int set, const struct served *served, int spare);
/* The set of a replica. */
int models_set_of(const struct models *m, int replica);

/* The number of this name, which may end with ".tar.gz" or ".tar"; -1: there is no such model. */
int models_find(const struct models *m, const char *name);

/* The copy is closed, if it is opened. */
void models_shut(struct models *m, struct model_copy *copy);

/* models_life.c, called in every round: process messages of opener and main threads, carry out the table's
 * decisions. */
void models_take(struct models *m);
void models_decide(struct models *m);

/* A task that a replica has returned: is it a warm-up? If so, it is taken over, and the model continues with the next
 * one or counts as loaded. */
bool models_take_back(struct models *m, struct task *task);

/* The loop runs: load what is pinned. */
void models_start(struct models *m);

/* The main threads are told to stop. */
void models_stop(struct models *m);

/* models_metrics.c: counts of every model that was asked for or loaded, appended to *out as Prometheus text; of one
 * model: nothing. */
void models_write_metrics(const struct models *m, struct text_buffer *out, struct err *e);

#endif
