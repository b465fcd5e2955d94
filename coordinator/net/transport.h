/* coordinator/net/transport.h - the socket of the server: it listens, accepts connections, reads their messages in turn
 * and writes replies. It speaks ZMTP like a ROUTER (coordinator/net/zmtp.h), but a reply belongs to a connection:
 * clients cannot choose an identity, so none can take another's. Used by one thread after transport_open. Nothing here
 * blocks, and nothing is dropped silently: a message that cannot be sent is reported to the sender. */
#ifndef NET_TRANSPORT_H
#define NET_TRANSPORT_H

#include "base/err.h"
#include "coordinator/net/curve.h"
#include "coordinator/net/zmtp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#define TRANSPORT_ENDPOINT 512

struct channel; /* a connection, from accept to its end */

struct transport {
    void *context;         /* of libzmq, for mailboxes; owned */
    int poll;              /* to poll: readable when transport_turn has something to do */
    int listener;          /* -1: closed, or it rests because descriptors have run out */
    struct zmtp_keys keys; /* of CURVE */
    bool has_curve;
    char endpoint[TRANSPORT_ENDPOINT];  /* as bound, with the port or path that was chosen */
    bool is_ipc, is_local;              /* a Unix socket; not to be reached from another host */
    size_t max_bytes;                   /* of a message */
    size_t pending;                     /* bytes of unprocessed messages, complete or not, of all connections */
    bool held_much;                     /* pending was large since the caller cleared this */
    int max_connections, n_connections; /* max_connections: further clients are turned away */
    int max_descriptors;                /* further clients wait */
    uint64_t n_turned_away;
    struct channel **by_fd; /* [n_fds] */
    int n_fds;
    struct channel *ready_first, *ready_last; /* with complete messages: each gives one per turn */
    struct channel *dirty;                    /* with bytes to write */
    struct channel *gone;                     /* ended, to be reported */
    uint64_t last_number;
    double swept, rests_until; /* rests_until: the listener accepts nothing before; 0: it does not rest */
};

/* The sender of a message: a connection. Its number is never reused. */
struct channel_name {
    uint64_t number; /* from 1 */
    int fd;
};

struct incoming {
    struct channel_name channel;
    bool delimiter; /* an empty frame stood before the body (REQ); the reply needs one too */
    int n_frames;   /* of the body; 1 is what the protocol knows */
    zmq_msg_t body; /* the first of them; the caller closes it */
};

enum sent { SENT, SENT_LATER, SENT_GONE }; /* on its way; the client reads too slowly; nobody there */

enum happening { HAPPENING_NONE, HAPPENING_GONE, HAPPENING_REFUSED, HAPPENING_PROBED };

/* A context, no socket yet. */
int transport_context(struct transport *t, struct err *e);

/* Checks an endpoint to bind. Refuses transports other than tcp and ipc, invalid ports, and endpoints that other hosts
 * or users can reach (including abstract ipc names) unless CURVE or `insecure` is given. */
int transport_check(const char *endpoint, bool curve, bool insecure, struct err *e);

/* Bind. A message of more than max_bytes ends its connection; with max_connections (0: any number) open, new ones are
 * closed. curve (or NULL) must be open, and is borrowed. */
int transport_open(struct transport *t, const char *endpoint, int64_t max_bytes, int64_t max_connections,
                   const struct curve *curve, struct err *e);

/* Stops listening and removes a Unix socket's path; existing connections remain. */
void transport_unlink(const struct transport *t);

/* Gives unsent messages linger_ms, then ends all connections and the context. All other sockets must be closed
 * before. */
void transport_close(struct transport *t, int linger_ms);

/* Accept connections, read, write, and end connections that are silent for too long. To be called in every round of the
 * loop; all clients get equal parts of a round. */
void transport_turn(struct transport *t);

/* Seconds until transport_turn is due even if `poll` reports nothing. */
double transport_due(const struct transport *t);

/* The next message, from another client than the previous one if any has one; false: none. */
bool transport_receive(struct transport *t, struct incoming *m);

/* Takes over text (malloc'ed) when it is SENT. It is written at the end of the turn, by transport_flush. */
enum sent transport_send(struct transport *t, const struct channel_name *channel, bool delimiter, char *text,
                         size_t bytes);
void transport_flush(struct transport *t);

/* Does the connection of a message still exist? */
bool transport_connected(const struct transport *t, const struct channel_name *channel);

/* Close this connection. The client notices, reconnects, and is a new client. */
void transport_disconnect(struct transport *t, const struct channel_name *channel);

/* Events of connections; HAPPENING_GONE: connection *channel has ended; HAPPENING_REFUSED: one ended during its
 * handshake; HAPPENING_PROBED: its client hung up without a byte, as health checks over TCP do. */
enum happening transport_happening(struct transport *t, struct channel_name *channel);

#endif
