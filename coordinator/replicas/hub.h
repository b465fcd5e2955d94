/* coordinator/replicas/hub.h - rank 0's end of the links: a thread between the mailboxes of the sets of ranks that
 * run elsewhere and their leaders. Orders go out as bytes, reports come in; the tasks themselves stay here, and the
 * thread that posted them cannot distinguish such a set from that of this process. A set runs one model, or has slots
 * for several that are loaded and unloaded by separate orders. */
#ifndef REPLICAS_HUB_H
#define REPLICAS_HUB_H

#include "coordinator/replicas/link.h"
#include "coordinator/replicas/replicas.h"

#include <pthread.h>

struct hub_replica { /* a set of ranks */
    void *control;   /* borrowed: mailbox of orders about models; NULL: a single model */
    int *vocab;      /* [n_slots] vocabulary of the model there; 0: none known */
    void *tasks;     /* of tsearch(3), by number: the set's tasks */
    char host[LINK_HOST_BYTES];
    bool connected, ended;
    int fd;        /* of the connection */
    double silent; /* s without a sign of life */
    double lost;   /* s since it was lost; negative: not lost */
    char why[80];
};

struct hub {
    int n_replicas, replica_size, n_slots; /* n_slots: of a set */
    const struct replicas *replicas;       /* borrowed */
    struct hub_replica *replica;           /* [n_replicas], the first one is unused */
    void *context, *router, *monitor;
    struct curve curve;
    struct link_pulse pulse;
    struct link_alarm alarm;
    pthread_t thread;
    bool running;
};

/* Bind, make the keys, start the thread. card: model, vocab, n_replicas, replica_size, timeout and what the schedulers
 * need are set; the rest is filled in, for the leaders. control: [card->n_replicas] the main threads' ends of mailboxes
 * for orders about models; NULL: there is one model. local: all leaders are on this host. */
int hub_open(struct hub *h, const struct replicas *replicas, void *const *control, struct link_card *card, bool local,
             struct err *e);

/* Has a replica failed? -1 and *e, for the main thread to end the job with. */
int hub_check(struct hub *h, struct err *e);

/* Waits for the thread, which ends when all replicas have; -1 and *e if one was lost instead. Safe on a zeroed
 * struct. */
int hub_close(struct hub *h, struct err *e);

#endif
