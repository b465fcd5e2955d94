/* coordinator/replicas/leader.h - runs on the first rank of every further replica: the main thread's scheduler
 * (coordinator/tasks/steps.h), as on rank 0, and a thread that delivers rank 0's orders to it and its reports to rank
 * 0. */
#ifndef REPLICAS_LEADER_H
#define REPLICAS_LEADER_H

#include "coordinator/replicas/link.h"
#include "coordinator/replicas/order_code.h"
#include "coordinator/tasks/steps.h"

#include <pthread.h>

struct leader {
    struct lexicon_keeper lexicon;
    struct tokenizer *tokenizer; /* of outputs: stop strings are found where steps run */
    struct steps steps;
    void *end[2]; /* mailbox: the link thread's, the main thread's */
    void *context, *dealer, *monitor;
    struct order_rules rules;
    struct link_pulse pulse;
    struct link_alarm alarm;
    double silent, lost; /* s without a sign of life of rank 0; since its connection ended, negative: it has not */
    bool told_to_stop, ended;
    pthread_t thread;
    bool running;
};

/* The model is loaded: connect to rank 0 (whose hub is open) and tell it so. */
int leader_open(struct leader *l, const struct link_card *card, int replica, const struct limits *limits,
                struct err *e);

/* The functions of struct loop_client, and what the replica's ranks measured. context: the struct leader. */
int leader_next(void *context, struct plan *plan, struct err *e);
int leader_accept(void *context, const struct step_result *result, struct err *e);
void leader_masks(void *context, struct plan *plan);
void leader_ranks(void *context, const struct rank_report *report);

/* After the loop has ended: what is left is sent. Safe on a zeroed struct. */
void leader_close(struct leader *l);

#endif
