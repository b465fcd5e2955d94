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

/* A place among those who take turns (turns.h): a party's within its client, a client's among all. */
struct turn {
    struct turn *next, *previous; /* the ring of those who have tasks; NULL: it has none */
    struct turn *below;           /* of a client: the party whose turn it is; NULL: none */
    struct task *first, *last;    /* of a party */
    int n_sequences;              /* of all its tasks */
};

#define CLIENT_TURNS   4    /* enum turn_kind */
#define CLIENT_PARTIES 4096 /* names at once, at most */

/* One on whose behalf a client asks ("on_behalf_of"). It lasts as long as it has tasks. */
struct party {
    char name[PROTOCOL_MAX_ID_BYTES + 1]; /* must be first: parties are found by it. "": the client's own requests */
    uint64_t number;                      /* among the client's; 0: its own */
    int n_tasks;
    int n_large;       /* unparsed tasks at the worker for large messages, which later messages must not overtake */
    size_t open_bytes; /* bytes of its messages in progress and of their possible results */
    int n_in_replicas; /* its sequences at replicas */
    struct turn turn[CLIENT_TURNS];
};

struct client {
    struct channel_name channel; /* must be first: clients are found by it */
    bool gone;                   /* clients_sweep will forget it */
    struct task *tasks;          /* linked by previous and next */
    struct outgoing *first, *last;
    size_t backlog; /* bytes of these */
    struct party own;
    void *parties;                    /* of tsearch(3), by name: [n_parties] others */
    int n_parties;                    /* at most CLIENT_PARTIES */
    uint64_t last_number;             /* of a party */
    size_t open_bytes;                /* of all parties */
    int n_in_replicas, n_at_replicas; /* sequences of all parties at replicas; parties that have some there */
    struct turn turn[CLIENT_TURNS];
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

/* The task is asked on behalf of this name; "": none. Names beyond CLIENT_PARTIES count as none. */
void client_add_task(struct client *c, struct task *task, const char *name);
void client_remove_task(struct task *task);

#endif
