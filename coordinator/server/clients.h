/* coordinator/server/clients.h - connected clients: the tasks of each, and replies that wait because it reads too
 * slowly. The I/O thread's. */
#ifndef SERVER_CLIENTS_H
#define SERVER_CLIENTS_H

#include "coordinator/net/transport.h"
#include "coordinator/tasks/task.h"

struct outgoing {
    char *text;
    size_t bytes;
    bool delimiter;
    uint64_t task; /* number; tokens of a task that is cancelled are taken back */
    bool tokens;   /* an event that may be taken back */
    struct outgoing *next;
};

struct client_turn { /* its part of a struct turns */
    struct task *first, *last;
    struct client *next, *previous;
    int n_sequences;
};

#define CLIENT_TURNS 4 /* enum turn_kind */

struct client {
    struct channel_name channel; /* first: it is what clients are found by */
    bool gone;                   /* to be forgotten by clients_sweep */
    struct task *tasks;          /* linked by previous and next */
    int n_large; /* tasks at the worker for large messages, not parsed yet: what follows waits behind them */
    struct outgoing *first, *last;
    size_t backlog;    /* bytes of these */
    size_t open_bytes; /* of its messages under way, and of what their results may take */
    struct client_turn turn[CLIENT_TURNS];
    int n_in_replicas; /* sequences that replicas have of it */
    struct client *previous, *next;
};

struct clients {
    void *tree; /* of tsearch(3), by the number of its connection */
    struct client *first;
    int n;
    size_t backlog; /* bytes, of all */
    bool any_gone;
};

/* The client of this connection, made if need be; NULL: out of memory. */
struct client *clients_find(struct clients *c, const struct channel_name *channel);

void clients_gone(struct clients *c, struct client *one);

/* A connection has ended. */
void clients_gone_channel(struct clients *c, const struct channel_name *channel);

/* Send, or keep for later what the pipe has no room for. Takes text over in any case. A client that is not there any
 * more is marked as gone. */
void clients_send(struct clients *c, struct transport *t, struct client *to, struct outgoing what);

/* Try again what waits. */
void clients_flush(struct clients *c, struct transport *t);

/* A client for which more than this waits, before its last message, has stopped reading and goes on asking: its
 * connection is closed. Returns how many were. */
int clients_cut(struct clients *c, struct transport *t, size_t most_bytes);

/* Take back the waiting token events of a task. */
void clients_take_back(struct clients *c, struct client *of, uint64_t task);

/* Forget those who are gone, after forget() was called for each; it takes their tasks. */
void clients_sweep(struct clients *c, void (*forget)(void *context, struct client *one), void *context);

void clients_close(struct clients *c);

void client_add_task(struct client *c, struct task *j);
void client_remove_task(struct task *j);

#endif
