/* coordinator/net/transport.h - the socket that clients talk to: it listens, takes connections, reads their messages in
 * turn and writes replies. It speaks ZMTP as a ROUTER does (coordinator/net/zmtp.h), but a reply belongs to a
 * connection and to nothing else: a client cannot name itself, so it cannot name itself like another one. One thread's,
 * after transport_open. Nothing here blocks, and nothing is dropped in silence: a message that cannot go out is
 * reported to who sends it. */
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
    int poll;              /* to wait for: readable when transport_turn has something to do */
    int listener;          /* -1: closed, or it rests because descriptors have run out */
    struct zmtp_keys keys; /* of CURVE */
    bool has_curve;
    char endpoint[TRANSPORT_ENDPOINT];  /* as bound, with the port or path that was chosen */
    bool is_ipc, is_local;              /* a Unix socket; not to be reached from another host */
    size_t max_bytes;                   /* of a message */
    size_t pending;                     /* bytes of messages that nobody has taken, whole or not, of all connections */
    bool held_much;                     /* pending was large since the caller cleared this */
    int max_connections, n_connections; /* max_connections: beyond, who comes is turned away */
    int max_descriptors;                /* beyond, who comes waits */
    uint64_t n_turned_away;
    struct channel **by_fd; /* [n_fds] */
    int n_fds;
    struct channel *ready_first, *ready_last; /* with whole messages: each gives one in its turn */
    struct channel *dirty;                    /* with bytes to write */
    struct channel *gone;                     /* ended, to be told of */
    uint64_t last_number;
    double swept, rests_until; /* rests_until: the listener takes nobody before; 0: it does not rest */
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

enum happening { HAPPENING_NONE, HAPPENING_GONE, HAPPENING_REFUSED };

/* A context, no socket yet. */
int transport_context(struct transport *t, struct err *e);

/* Is this an endpoint to bind? Refused: other transports than tcp and ipc, ports that are none, and endpoints that
 * others can reach (of other hosts; an abstract ipc name) unless there is CURVE or `insecure`. */
int transport_check(const char *endpoint, bool curve, bool insecure, struct err *e);

/* Bind. A message of more than max_bytes ends its connection, and so does coming when there are max_connections (0: any
 * number). curve (or NULL) is open already, and borrowed. */
int transport_open(struct transport *t, const char *endpoint, int64_t max_bytes, int64_t max_connections,
                   const struct curve *curve, struct err *e);

/* A Unix socket's path is taken away; who is connected stays so. */
void transport_unlink(const struct transport *t);

/* Unsent messages get linger_ms; then all connections end, and the context with them. All other sockets are closed
 * before. */
void transport_close(struct transport *t, int linger_ms);

/* Take new connections, read what has come, write what is to go out, end who is silent for too long. To be called in
 * every turn of the loop; a client gets as much of a turn as any other. */
void transport_turn(struct transport *t);

/* Seconds until transport_turn is due, though `poll` is quiet. */
double transport_due(const struct transport *t);

/* The next message, of another client than the one before where others have any; false: none there. */
bool transport_receive(struct transport *t, struct incoming *m);

/* Takes over text (malloc'ed) when it is SENT. It is written at the end of the turn, by transport_flush. */
enum sent transport_send(struct transport *t, const struct channel_name *channel, bool delimiter, char *text,
                         size_t bytes);
void transport_flush(struct transport *t);

/* Is the connection that a message came over still there? */
bool transport_connected(const struct transport *t, const struct channel_name *channel);

/* Close this connection. The client notices, reconnects, and is a new client. */
void transport_disconnect(struct transport *t, const struct channel_name *channel);

/* Events of connections; HAPPENING_GONE: *channel's has ended; HAPPENING_REFUSED: one ended before it was a client. */
enum happening transport_happening(struct transport *t, struct channel_name *channel);

#endif
