/* coordinator/replicas/leader_link.h - the end of the link on the leader of a further set of ranks: a thread between
 * rank 0 and the mailboxes of the leader's main thread, which cannot tell them from those of rank 0's own. */
#ifndef REPLICAS_LEADER_LINK_H
#define REPLICAS_LEADER_LINK_H

#include "coordinator/replicas/link.h"
#include "coordinator/replicas/order_code.h"

#include <pthread.h>
#include <zmq.h>

struct leader_link {
    int n_slots;
    bool many; /* models are loaded and unloaded */
    struct leader_slot {
        void *end[2]; /* mailbox: the link thread's, the main thread's */
        struct order_rules rules;
    } * slot;         /* [n_slots] one for each model */
    void *control[2]; /* the same for orders about models, with many models; else NULL */
    void *context, *dealer, *monitor;
    zmq_pollitem_t *item; /* owned */
    struct link_pulse pulse;
    struct link_alarm alarm;
    double silent, lost; /* s without a sign of life of rank 0; s since its connection ended, negative: it has not */
    bool told_to_stop, ended;
    pthread_t thread;
    bool running;
};

/* Connect to rank 0, whose hub is open, and wait for its answer. many: as in the struct. */
int leader_link_open(struct leader_link *l, const struct link_card *card, int replica, bool many, struct err *e);

/* Start the thread, which ends with the last report, or (many) with MODEL_ENDED. One model: its rules are set. */
int leader_link_start(struct leader_link *l, struct err *e);

/* Has the link failed? -1 and *e, for the main thread to end the job with. */
int leader_link_check(struct leader_link *l, struct err *e);

/* Sends the rest first. Safe on a zeroed struct. */
void leader_link_close(struct leader_link *l);

#endif
