/* coordinator/server/clients.h - connected clients: the tasks of each, and replies that wait because it reads too
 * slowly. Used by the I/O thread only. */
#ifndef SERVER_CLIENTS_H
#define SERVER_CLIENTS_H

#include "coordinator/net/transport.h"
#include "coordinator/tasks/task.h"

struct outgoing {
    char *text;
    size_t bytes;
    bool delimiter;
    uint64_t task; /* number of the task; tokens of a cancelled one are taken back */
    bool tokens;   /* an event that may be taken back */
    struct outgoing *next;
};

struct client_turn { /* its links in a struct turns */
    struct task *first, *last;
    struct client *next, *previous;
    int n_sequences;
};

#define CLIENT_TURNS 4 /* enum turn_kind */

struct client {
    struct channel_name channel; /* must be first: clients are found by it */
    bool gone;                   /* clients_sweep will forget it */
    struct task *tasks;          /* linked by previous and next */
    int n_large; /* unparsed tasks at the worker for large messages, which later messages must not overtake */
    struct outgoing *first, *last;
    size_t backlog;    /* bytes of these */
    size_t open_bytes; /* bytes of its messages in progress and of their possible results */
    struct client_turn turn[CLIENT_TURNS];
    int n_in_replicas; /* its sequences at replicas */
    struct client *previous, *next;
};

struct clients {
    void *tree; /* of tsearch(3), by the number of its connection */
    struct client *first;
    int n;
    size_t backlog; /* bytes, of all */
    bool any_gone;
};

/* The client of this connection, created if necessary; NULL: out of memory. */
struct client *clients_find(struct clients *c, const struct channel_name *channel);

void clients_gone(struct clients *c, struct client *one);

/* A connection has ended. */
void clients_gone_channel(struct clients *c, const struct channel_name *channel);

/* Send, or keep the text until there is room. Takes over text in any case. Marks a client that no longer exists as
 * gone. */
void clients_send(struct clients *c, struct transport *t, struct client *to, struct outgoing what);

/* Try to send waiting replies. */
void clients_flush(struct clients *c, struct transport *t);

/* Closes connections of clients that had more than this waiting when they sent their last message: they have stopped
 * reading but continue to ask. Returns the number of closed connections. */
int clients_cut(struct clients *c, struct transport *t, size_t most_bytes);

/* Take back the waiting token events of a task. */
void clients_take_back(struct clients *c, struct client *of, uint64_t task);

/* Forget clients that are gone, after forget() was called for each, which handles their tasks. */
void clients_sweep(struct clients *c, void (*forget)(void *context, struct client *one), void *context);

void clients_close(struct clients *c);

void client_add_task(struct client *c, struct task *task);
void client_remove_task(struct task *task);

#endif
