/* commands/front.h - the common part of `serve` and `batch` on rank 0: the model's name, tokenizer and chat template,
 * the main thread's scheduler (coordinator/tasks/steps.h), and the ways to other replicas. The source of requests is
 * theirs. */
#ifndef COMMANDS_FRONT_H
#define COMMANDS_FRONT_H

#include "coordinator/replicas/hub.h"
#include "coordinator/tasks/service_options.h"
#include "coordinator/tasks/steps.h"
#include "partition/model.h"
#include "plan/rank_stats.h"
#include "text/chat.h"

struct front {
    const struct service_options *o; /* borrowed; as they are for this job */
    char name[768];                  /* of the model, in UTF-8 whatever its folder is called */
    struct tokenizer *tokenizer;
    struct lexicon_keeper lexicon;
    struct chat_template *chat;  /* NULL: none that we know */
    struct protocol_model model; /* .name is `name` */
    int32_t bos;                 /* -1: none */
    int rope_changes_at;         /* see struct scheduler_setup */
    int n_ranks, n_replicas;
    struct replicas *replicas; /* borrowed from the owner of the requests; set before front_start */
    struct steps steps;
    struct hub hub; /* the other replicas, if there are any */
};

/* Read tokenizer and chat template. Rank 0. *f is zeroed, or nothing but o is set in it. */
int front_open(struct front *f, const struct service_options *o, const struct model_config *m, int n_ranks,
               struct err *e);

/* The model is loaded. */
int front_start(struct front *f, const struct limits *l, struct err *e);

/* The functions of struct loop_client; and what all ranks measured. context: the struct front. */
int front_next(void *context, struct plan *plan, struct err *e);
int front_accept(void *context, const struct step_result *result, struct err *e);
void front_signal(void *context, enum signal_wish wish);
void front_ranks(void *context, const struct rank_report *report);

/* After the loop has ended, in this order: the steps end and the other replicas are disconnected, whose mailboxes belong
 * to the owner of the requests (*e reports a replica that was lost meanwhile); and, after the owner is closed, the rest.
 * Both safe on a zeroed struct. */
void front_end(struct front *f, struct err *e);
void front_close(struct front *f);

#endif
