/* commands/models/fleet.h - the main thread's part of a job of many models on rank 0: between the thread that hands
 * out work and decides which are loaded (coordinator/models/models.h), and the ranks, which hold them
 * (rank/instance/residents.h). */
#ifndef MODELS_FLEET_H
#define MODELS_FLEET_H

#include "commands/models/discover.h"
#include "commands/models/host_use.h"
#include "commands/models/model_memory.h"
#include "commands/models/shelf.h"
#include "coordinator/archives/cache.h"
#include "coordinator/models/models.h"
#include "coordinator/models/models_options.h"
#include "coordinator/tasks/lanes.h"
#include "coordinator/tasks/service_options.h"
#include "rank/instance/residents.h"

#define FLEET_CHANGES (2 * PLAN_MODELS) /* plans that wait: at most two of each number */

struct opened_model;

/* The thread that hands out work: a server's, a batch's. */
struct fleet_front {
    void *context;
    int (*open)(void *context, const struct models_setup *models, struct err *e);
    int (*start)(void *context, struct err *e); /* before the loop runs; NULL: there is nothing to do */
    int (*close)(void *context, struct err *e); /* after it; returns the exit status */
    struct models *models;                      /* these two are there from its opening on */
    struct replicas *replicas;
};

/* Rank 0's; borrowed. */
struct fleet_setup {
    const struct service_options *service;
    const struct models_options *models;
    const char *pin;   /* NAME,NAME to be loaded at once, and kept; NULL: none */
    double keep_alive; /* these: as in struct deploy_setup */
    double patience, hold, residence;
    /* Hashes and names that identify a model that is opened, from now on the caller's; NULL and *e: it cannot be told.
     * NULL: nobody wants to know. */
    struct json_t *(*identify)(const struct checkpoint *c, const struct served *served, struct err *e);
    struct fleet_front front;
};

struct fleet { /* zeroed at first */
    struct fleet_setup setup;
    const struct ops *ops; /* of the ranks' devices */
    int n_ranks;
    struct discovered found;
    struct archive_cache archives; /* not open: there is no --models-cache */
    bool *pinned;                  /* [found.n] */
    struct model_memory memory;
    struct shelf shelf;
    struct lanes lanes;
    struct fleet_slot {
        struct opened_model *model; /* borrowed; NULL: the number is free */
        struct err why;             /* its load has failed, and is being rolled back */
        bool failed;
    } slot[PLAN_MODELS];
    struct fleet_change {
        enum plan_kind kind;
        int slot;
    } change[FLEET_CHANGES]; /* [n_changes] that plans are to say, the next one first */
    int n_changes;
    bool loading, stopping;
    struct err failure; /* within an event that cannot fail: the job ends */
};

/* Find the models, open the front. host: borrowed; its disk and archives are set here. */
int fleet_open(struct fleet *f, const struct fleet_setup *setup, const struct ops *ops, int n_ranks,
               const struct model_memory *memory, struct host_use *host, struct err *e);

/* The loop is about to run. */
int fleet_start(struct fleet *f, struct err *e);

/* After it: returns the exit status. Safe on a zeroed struct. */
int fleet_close(struct fleet *f, struct err *e);

/* struct residents_owner, struct loop_client, and what all ranks measured; context: the struct fleet. */
void fleet_fetch(void *context, int model, struct model_config *m, struct checkpoint *c, struct instance_setup *setup);
void fleet_hear(void *context, const struct residents_news *news);
int fleet_next(void *context, struct plan *plan, struct err *e);
int fleet_accept(void *context, const struct step_result *result, struct err *e);
void fleet_masks(void *context, struct plan *plan);
void fleet_signal(void *context, enum signal_wish wish);
void fleet_ranks(void *context, const struct rank_report *report);

#endif
