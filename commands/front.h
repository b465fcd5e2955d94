/* commands/front.h - the common part of `serve` and `batch` on rank 0: the model's name, tokenizer and chat template,
 * the main thread's scheduler (coordinator/tasks/steps.h), and the ways to other replicas. The source of requests is
 * theirs. */
#ifndef COMMANDS_FRONT_H
#define COMMANDS_FRONT_H

#include "commands/texts.h"
#include "coordinator/replicas/hub.h"
#include "coordinator/tasks/lanes.h"
#include "coordinator/tasks/service_options.h"
#include "plan/rank_stats.h"

struct front {
    const struct service_options *o; /* borrowed; this job's */
    struct texts texts;
    int n_ranks, n_replicas;
    struct replicas *replicas; /* borrowed from the owner of the requests; set before front_start */
    struct lanes lanes;        /* one */
    struct hub hub;            /* the other sets, if there are any */
};

/* Read tokenizer and chat template. Rank 0. *f is zeroed, or nothing but o is set in it. */
int front_open(struct front *f, const struct service_options *o, const struct model_config *m, int n_ranks,
               struct err *e);

/* The model is loaded. */
int front_start(struct front *f, const struct limits *l, struct err *e);

/* The functions of struct loop_client; and what all ranks measured. context: the struct front. */
int front_next(void *context, struct plan *plan, struct err *e);
int front_accept(void *context, const struct step_result *result, struct err *e);
void front_masks(void *context, struct plan *plan);
void front_signal(void *context, enum signal_wish wish);
void front_ranks(void *context, const struct rank_report *report);

/* After the loop has ended: first front_end ends the steps and disconnects the other replicas, whose mailboxes belong
 * to the owner of the requests (*e reports a replica lost meanwhile); after the owner is closed, front_close frees the
 * rest. Both safe on a zeroed struct. */
void front_end(struct front *f, struct err *e);
void front_close(struct front *f);

#endif
