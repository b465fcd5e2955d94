/* commands/models/fleet.h - a job of many models on rank 0: the available models, the thread that distributes work and
 * decides which are loaded (coordinator/models/models.h), rank 0's own crew, and the links to those of other sets. */
#ifndef MODELS_FLEET_H
#define MODELS_FLEET_H

#include "commands/models/crew.h"
#include "commands/models/discover.h"
#include "commands/models/host_use.h"
#include "commands/models/model_memory.h"
#include "commands/models/shelf.h"
#include "coordinator/archives/cache.h"
#include "coordinator/models/models.h"
#include "coordinator/models/models_options.h"
#include "coordinator/replicas/hub.h"
#include "coordinator/tasks/service_options.h"

/* The thread that distributes work: a server's or a batch's. */
struct fleet_front {
    void *context;
    int (*open)(void *context, const struct models_setup *models, struct err *e);
    int (*start)(void *context, struct err *e); /* before the loop runs; NULL: there is nothing to do */
    int (*close)(void *context, struct err *e); /* after it; returns the exit status */
    struct models *models;                      /* these two are valid from its opening on */
    struct replicas *replicas;
};

/* Rank 0's; borrowed. */
struct fleet_setup {
    const struct service_options *service;
    const struct models_options *models;
    const char *pin;   /* NAME,NAME to be loaded at once, and kept; NULL: none */
    double keep_alive; /* these: as in struct deploy_setup */
    double patience, hold, residence;
    /* Hashes and names that identify an opened model, owned by the caller; NULL and *e: on failure. The function NULL:
     * not needed. */
    struct json_t *(*identify)(const struct checkpoint *c, const struct served *served, struct err *e);
    struct fleet_front front;
};

struct fleet { /* zeroed at first */
    struct crew crew;
    struct hub hub; /* the other sets, if there are any */
    struct fleet_setup setup;
    const struct ops *ops; /* of the ranks' devices */
    int n_sets, n_ranks;   /* n_ranks: of a set */
    struct discovered found;
    struct archive_cache archives; /* not open: there is no --models-cache */
    bool *pinned;                  /* [found.n] */
    int *n_replicas;               /* [found.n] */
    struct model_memory memory;
    struct shelf shelf;
};

/* Find the models, open the front and the crew. set: the ranks of rank 0's set. host: borrowed; its disk and archives
 * are set here. */
int fleet_open(struct fleet *f, const struct fleet_setup *setup, const struct ops *ops, const struct world *set,
               const struct model_memory *memory, struct host_use *host, struct err *e);

/* Opens the links to the other sets, and puts the data for their crews into the card. local: they are on this host. */
int fleet_link(struct fleet *f, struct link_card *card, bool local, double timeout, struct err *e);

/* The loop is about to run. */
int fleet_start(struct fleet *f, struct err *e);

/* After it: returns the exit status; *e says if a set was lost meanwhile. Safe on a zeroed struct. */
int fleet_close(struct fleet *f, struct err *e);

#endif
