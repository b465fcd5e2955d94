/* coordinator/replicas/link.h - the connection between rank 0 and the leader of another replica: its address and keys,
 * socket options of both ends, and how either end notices that the other one is gone. */
#ifndef REPLICAS_LINK_H
#define REPLICAS_LINK_H

#include "coordinator/drafts/guesses.h"
#include "coordinator/net/curve.h"
#include "coordinator/replicas/wire.h"

#include <limits.h>
#include <stdatomic.h>

#define LINK_ADDRESSES     8
#define LINK_ADDRESS_BYTES 64
#define LINK_HOST_BYTES    64

/* The size of a frame: a longer message is sent in several frames. It also limits the memory that a connection can use
 * on rank 0 before it has shown its key. */
#define LINK_FRAME_BYTES ((size_t)1 << 20)

/* Rank 0's message to the leaders before they connect. Flat: main.c broadcasts it. */
struct link_card {
    char address[LINK_ADDRESSES]
                [LINK_ADDRESS_BYTES]; /* "10.1.2.3", addresses of this host that others may reach; "": no more */
    int32_t port;
    char server_key[CURVE_TEXT], public_key[CURVE_TEXT], secret_key[CURVE_TEXT]; /* rank 0's; the leaders' pair */
    int32_t n_replicas, replica_size, n_slots;      /* n_slots: for models of a replica; 1: a single model */
    int32_t vocab, prefix_caching, rope_changes_at; /* of the single model; of struct scheduler_setup */
    struct guess_rules guesses;                     /* likewise, */
    double max_step;                                /* and this */
    double timeout; /* s without a sign of life after which a process is given up; 0: never */
    char model[PATH_MAX];
};

/* Numeric addresses of this host; only the loopback if `local`. */
int link_addresses(struct link_card *card, bool local, struct err *e);

/* "tcp://ADDRESS:PORT" of the first address with a listener. */
int link_find(const struct link_card *card, char *endpoint, size_t bytes, struct err *e);

/* Options of both ends: no limit on messages under way (rank 0 limits the tasks), but one on each frame's size; a short
 * time to show a key; TCP notices a lost host. */
int link_configure(void *socket, struct err *e);

/* A monitor of the socket's connections, at this in-process address. */
int link_monitor(void *context, void *socket, const char *address, void **monitor, struct err *e);

/* The descriptor of a connection that has ended; -1: none since the last call. */
int link_ended(void *monitor);

/* Send the written message, and free it. id: for a ROUTER, NULL: none. false: there is no peer, or out of memory. */
bool link_send(void *socket, const char *id, struct wire_out *w);

/* Append the frames of a message that have arrived, after its id if there is one; w->failed: out of memory, and the
 * rest is lost. fd: of its connection. false: nothing has arrived. */
bool link_receive(void *socket, struct wire_out *w, int *fd);

/* Signs of life of both ends. */
struct link_pulse {
    double timeout, interval; /* timeout 0: no limit */
    double looked, sent;
};

void link_pulse_open(struct link_pulse *p, double timeout);

/* Seconds since the last call; less if this process was stopped meanwhile. */
double link_pulse_passed(struct link_pulse *p);

/* Is it time for a sign of life? */
bool link_pulse_due(struct link_pulse *p);

/* The reason to end the job: set by the link's thread, read by the main thread. */
struct link_alarm {
    struct err err;
    _Atomic bool raised;
};

void link_raise(struct link_alarm *a, const struct err *e);
/* -1 and *e if it was raised. */
int link_check(struct link_alarm *a, struct err *e);

/* The other end seems to be lost. The failed process should report first, so this report is delayed. */
#define LINK_PATIENCE 2.0 /* s */

#endif
