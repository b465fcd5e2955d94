/* coordinator/server/transport.h - the ROUTER socket that clients talk to, and what it tells about their connections. One
 * thread's, after transport_open. Nothing here blocks, and nothing is dropped in silence: a message that cannot go out is
 * reported to who sends it. */
#ifndef SERVER_TRANSPORT_H
#define SERVER_TRANSPORT_H

#include "base/err.h"
#include "coordinator/curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#define TRANSPORT_MAX_ID   255 /* bytes of a ZeroMQ routing id */
#define TRANSPORT_ENDPOINT 512

struct transport {
    void *context;                     /* owned; mailboxes may live in it too */
    void *router, *monitor;            /* to poll */
    struct curve *curve;               /* borrowed; NULL: plain */
    char endpoint[TRANSPORT_ENDPOINT]; /* as bound, with the port or path that was chosen */
    bool is_ipc, is_local;             /* a Unix socket; not to be reached from another host */
    bool *connected;                   /* [n_connected] by descriptor, as far as happenings have been taken */
    int n_connected;
};

/* Who sent a message, and over which connection. */
struct peer {
    unsigned char id[TRANSPORT_MAX_ID];
    size_t id_bytes;
    int fd; /* of the connection, to tell it from a later one of the same id */
};

struct incoming {
    struct peer peer;
    bool delimiter; /* an empty frame stood before the body (REQ); the reply needs one too */
    int n_frames;   /* of the body; 1 is what the protocol knows */
    zmq_msg_t body; /* the first of them; the caller closes it */
};

enum sent { SENT, SENT_LATER, SENT_GONE }; /* on its way; the client's pipe is full; nobody there */

enum happening { HAPPENING_NONE, HAPPENING_GONE, HAPPENING_REFUSED, HAPPENING_OTHER };

/* A context, no socket yet. */
int transport_context(struct transport *t, struct err *e);

/* Is this an endpoint to bind? Refused: other transports than tcp and ipc, and endpoints that others can reach (of other
 * hosts; an abstract ipc name) unless there is CURVE or `insecure`. */
int transport_check(const char *endpoint, bool curve, bool insecure, struct err *e);

/* Bind. A message of more than max_bytes ends its connection. curve (or NULL) is open already. */
int transport_open(struct transport *t, const char *endpoint, int64_t max_bytes, struct curve *curve, struct err *e);

/* A Unix socket's path is taken away; who is connected stays so. */
void transport_unlink(const struct transport *t);

/* What is still on its way out gets so long; then the context ends, with all of it. All other sockets are closed before. */
void transport_close(struct transport *t, int linger_ms);

/* The next message; false: none there. */
bool transport_receive(struct transport *t, struct incoming *m);

/* Takes over text (malloc'ed) when it is SENT. */
enum sent transport_send(struct transport *t, const struct peer *peer, bool delimiter, char *text, size_t bytes);

/* Is the connection that a message came over still there? A descriptor of -1 (unknown) is. */
bool transport_connected(const struct transport *t, int fd);

/* Close this connection. The client notices, connects anew, and is a new client. */
void transport_disconnect(const struct transport *t, int fd);

/* The client has chosen its id. Those that libzmq gives begin with a 0, which a client's own may not. */
bool peer_has_own_id(const struct peer *p);

/* What happened to connections; HAPPENING_GONE: *fd's. */
enum happening transport_happening(struct transport *t, int *fd);

#endif
