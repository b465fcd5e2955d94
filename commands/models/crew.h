/* commands/models/crew.h - the main thread's part of a job of many models on the first rank of a set: between
 * mailboxes, through which rank 0's I/O or batch thread (coordinator/models/models.h) distributes work and orders
 * loads, and the ranks of the set, which hold models (rank/instance/residents.h). */
#ifndef MODELS_CREW_H
#define MODELS_CREW_H

#include "commands/models/opened_model.h"
#include "coordinator/models/opener.h"
#include "coordinator/tasks/lanes.h"
#include "coordinator/tasks/model_orders.h"
#include "rank/instance/residents.h"

#define CREW_CHANGES (2 * PLAN_MODELS) /* capacity for waiting plans: at most two per model number */

/* Opens models if orders come without opened ones. All functions are called by the main thread. */
struct crew_source {
    void *context;
    bool (*ask)(void *context, const struct model_order *o); /* false: out of memory */
    struct opening *(*take)(void *context);                  /* the next one, its `model` a slot; NULL: none is done */
    void (*close)(void *context, void *handle);
};

struct crew_setup { /* all that is pointed to is borrowed */
    int n_slots, n_units;
    void *control, *mailbox[PLAN_MODELS]; /* the main thread's ends; mailbox: [n_slots] */
    struct guess_rules guesses;
    bool prefix_caching;
    double max_step;                            /* of struct scheduler_setup */
    struct crew_source source;                  /* ask NULL: orders bring models */
    int (*check)(void *context, struct err *e); /* -1: the link to other sets has failed */
    void *check_context;
    void (*stopping)(void *context); /* the end is ordered; NULL: not needed */
    void *stopping_context;
};

struct crew { /* zeroed at first */
    struct crew_setup setup;
    struct lanes lanes;
    struct crew_slot {
        struct opened_model *model; /* borrowed, or (source) owned; NULL: the number is free */
        struct err why;             /* its load has failed, and is being rolled back */
        bool failed;
    } slot[PLAN_MODELS];
    struct crew_change {
        enum plan_kind kind;
        int slot;
    } change[CREW_CHANGES];   /* [n_changes] to put into plans, the next one first */
    int n_changes, n_leaving; /* models whose memory is being given back */
    bool loading, stopping;
    struct err failure; /* a failure within an event that cannot fail: the job ends */
};

/* The crew must stay where it is. */
int crew_open(struct crew *c, const struct crew_setup *setup, struct err *e);

/* Is there a message for the thread that distributes work? */
void crew_say(struct crew *c, struct model_word what);

/* After the loop: returns the lanes' remaining requests unfinished. Then MODEL_ENDED may be sent. Safe on a zeroed
 * struct. */
void crew_close(struct crew *c);

/* struct residents_owner, struct loop_client, and what the ranks of the set measured; context: the struct crew. */
void crew_fetch(void *context, int model, struct model_config *m, struct checkpoint *c, struct instance_setup *setup);
void crew_hear(void *context, const struct residents_news *news);
int crew_next(void *context, struct plan *plan, struct err *e);
int crew_accept(void *context, const struct step_result *result, struct err *e);
void crew_masks(void *context, struct plan *plan);
void crew_signal(void *context, enum signal_wish wish);
void crew_ranks(void *context, const struct rank_report *report);

#endif
