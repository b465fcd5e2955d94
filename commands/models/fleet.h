/* commands/models/fleet.h - the main thread's part of a server of many models on rank 0: between the I/O thread,
 * which decides which are loaded (coordinator/server/models.h), and the ranks, which hold them
 * (rank/instance/residents.h). */
#ifndef MODELS_FLEET_H
#define MODELS_FLEET_H

#include "commands/models/discover.h"
#include "commands/models/host_use.h"
#include "commands/models/shelf.h"
#include "coordinator/archives/cache.h"
#include "coordinator/server/server.h"
#include "coordinator/tasks/lanes.h"
#include "rank/instance/residents.h"

#define FLEET_CHANGES (2 * PLAN_MODELS) /* plans that wait: at most two of each number */

struct opened_model;

struct fleet { /* zeroed at first */
    const struct serve_options *o;
    const struct ops *ops; /* of the ranks' devices */
    int n_ranks;
    struct discovered found;
    struct archive_cache archives; /* not open: there is no --models-cache */
    bool *pinned;                  /* [found.n] */
    size_t kv_bytes;               /* of a rank, which models share */
    struct shelf shelf;
    struct server server;
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

/* Memory of a rank for models, in bytes. */
struct model_memory {
    int64_t all, kv; /* kv: of these, for keys and values */
};

/* Find the models, open the socket: from now on clients hear that nothing is there yet. host: borrowed; its disk and archives are set here. */
int fleet_open(struct fleet *f, const struct serve_options *o, const struct ops *ops, int n_ranks,
               const struct model_memory *memory, struct host_use *host, struct err *e);

/* The loop is about to run. */
void fleet_start(struct fleet *f);

/* After it: returns the exit status. Safe on a zeroed struct. */
int fleet_close(struct fleet *f);

/* struct residents_owner, struct loop_client, and what all ranks measured; context: the struct fleet. */
void fleet_fetch(void *context, int model, struct model_config *m, struct checkpoint *c, struct instance_setup *setup);
void fleet_hear(void *context, const struct residents_news *news);
int fleet_next(void *context, struct plan *plan, struct err *e);
int fleet_accept(void *context, const struct step_result *result, struct err *e);
void fleet_masks(void *context, struct plan *plan);
void fleet_signal(void *context, enum signal_wish wish);
void fleet_ranks(void *context, const struct rank_report *report);

#endif
