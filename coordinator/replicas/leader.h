/* coordinator/replicas/leader.h - runs on the first rank of every further replica of one model: the main thread's
 * scheduler (coordinator/tasks/steps.h), as on rank 0, to which the link delivers rank 0's orders. */
#ifndef REPLICAS_LEADER_H
#define REPLICAS_LEADER_H

#include "coordinator/replicas/leader_link.h"
#include "coordinator/tasks/steps.h"

struct leader {
    struct lexicon_keeper lexicon;
    struct tokenizer *tokenizer; /* the tokenizer of outputs: stop strings are found where steps run */
    struct steps steps;
    struct leader_link link;
};

/* To be called when the model is loaded: connects to rank 0, whose hub is open, and reports it. */
int leader_open(struct leader *l, const struct link_card *card, int replica, const struct limits *limits,
                struct err *e);

/* The functions of struct loop_client, and what the replica's ranks measured. context: the struct leader. */
int leader_next(void *context, struct plan *plan, struct err *e);
int leader_accept(void *context, const struct step_result *result, struct err *e);
void leader_masks(void *context, struct plan *plan);
void leader_ranks(void *context, const struct rank_report *report);

/* To be called after the loop has ended: sends the remaining messages. Safe on a zeroed struct. */
void leader_close(struct leader *l);

#endif
