/* commands/models/changeover.h - replaces models in the slots of a job by named ones: a thread opens the next model,
 * the previous one in its slot is dropped, then the next is loaded and committed; and the time of each part. Rank 0. */
#ifndef MODELS_CHANGEOVER_H
#define MODELS_CHANGEOVER_H

#include "commands/models/model_folder.h"
#include "commands/models/opened_model.h"
#include "commands/models/switch_report.h"
#include "coordinator/schedule/units.h"
#include "rank/instance/residents.h"

#include <pthread.h>
#include <stdatomic.h>

#define CHANGEOVER_PLACES 2 /* numbers of models in plans */

enum changeover_stage {
    CHANGEOVER_RESTS,   /* no request */
    CHANGEOVER_OPENING, /* a thread opens the next model */
    CHANGEOVER_LOAD,    /* its place is free */
    CHANGEOVER_WAITS,   /* a plan is being carried out; its result will be reported */
    CHANGEOVER_COMMIT   /* all ranks have read it */
};

struct changeover_owner {
    void *context;
    /* A slot is empty again; its model's share of the KV memory is returned after the call. NULL: no callback. */
    void (*gone)(void *context, int place);
    /* The requested model runs. *limits: the maximum number of its blocks in the KV memory, which changeover_join
     * allocates. A failure ends the job. */
    int (*ready)(void *context, int place, struct limits *limits, struct err *e);
};

struct changeover {
    struct changeover_owner owner;
    struct service_options service;
    const struct ops *ops;
    int n_ranks;
    size_t kv_bytes;
    struct shelf shelf;
    struct units units;                                      /* of the memory for keys and values */
    struct opened_model *opened, *loaded[CHANGEOVER_PLACES]; /* models being loaded; and loaded */
    struct err opening_failure;                              /* the thread's, as `opened` is, until it is done */
    pthread_t opening;
    atomic_bool opening_done;
    const struct model_folder *folder; /* of the model on its way in */
    int place;                         /* and where it comes */
    enum changeover_stage stage;
    double asked, plan_began, arrived; /* seconds_now() */
    double part[N_SWITCH_PARTS];       /* s, of the model requested last */
    struct err failure;
};

/* Options of many models, as a server has them. *x is zeroed. */
void changeover_open(struct changeover *x, const struct run_options *run, const struct changeover_owner *owner);
/* The ranks and the bytes that they have for keys and values. */
int changeover_start(struct changeover *x, const struct instance *ground, size_t kv_bytes, struct err *e);
void changeover_close(struct changeover *x); /* safe on a zeroed struct */

/* Requests the model of a folder, which is borrowed, for a slot. No other request may be pending. */
int changeover_ask(struct changeover *x, int place, const struct model_folder *folder, struct err *e);

/* Fills the plan with the next change: returns 0; 1: there is none now. waits: steps come first. hurry: a running model
 * is waiting. Call it before each plan of a job. */
int changeover_plan(struct changeover *x, struct plan *p, bool waits, bool hurry, struct err *e);

/* Within `ready`: the scheduler that runs the model is to be opened with source, [KV_KINDS]. */
int changeover_join(struct changeover *x, int place, struct scheduler *s, struct blocks_source *source, struct err *e);

/* Translates the blocks in a step of the model in a slot to the arena's numbers. */
void changeover_number(const struct changeover *x, int place, struct plan *p);

/* The first token of the model requested last has come: sets part[SWITCH_TOKEN] and part[SWITCH_ALL]. */
void changeover_note_token(struct changeover *x, double now);

/* The functions of struct residents_owner, whose context is the changeover. */
void changeover_fetch(void *context, int place, struct model_config *m, struct checkpoint *c,
                      struct instance_setup *setup);
void changeover_hear(void *context, const struct residents_news *news);

#endif
