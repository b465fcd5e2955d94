/* coordinator/net/zmtp.h - ZMTP 3.1, ZeroMQ's wire protocol (RFC 37; CURVE: RFC 26): the server's end of one
 * connection, from the greeting to whole messages. Pure: bytes in, messages and bytes out; no socket, no clock, no
 * thread of its own.
 *
 * Why libzmq's ROUTER does not do this: docs/decisions/transport.md. In short, it files connections under ids that
 * clients may choose, so one client can get another's replies or abort the process. Here connections have no ids. */
#ifndef NET_ZMTP_H
#define NET_ZMTP_H

#include "coordinator/net/zmtp_curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZMTP_GREETING_BYTES 64
#define ZMTP_MAX_COMMAND    ((size_t)4096) /* of a handshake or a heartbeat */
#define ZMTP_MAX_FRAMES     64             /* parts of a message: more end the connection */
#define ZMTP_HEAD_BYTES     9              /* of a frame, at most */

/* The received part of a message: an empty frame before the body (REQ), the body, and the number of other frames. */
struct zmtp_message {
    char *body; /* malloc'ed; NULL when bytes is 0 */
    size_t bytes;
    bool delimiter; /* the reply needs one, too */
    int n_frames;   /* without the delimiter; the body is the first of them */
    struct zmtp_message *next;
};

void zmtp_message_free(struct zmtp_message *m);

struct zmtp {
    const struct zmtp_keys *keys; /* borrowed; NULL: the mechanism is NULL, nothing is encrypted */
    size_t max_bytes;             /* of a message, all its frames together */
    enum zmtp_state {
        ZMTP_GREETING,
        ZMTP_HANDSHAKE, /* NULL mechanism: the client's READY is due; CURVE: see curve.state */
        ZMTP_OPEN,
        ZMTP_REFUSED /* the connection is to be ended, once `out` is sent */
    } state;
    struct zmtp_curve curve;

    /* The frame that is arriving. */
    unsigned char head[ZMTP_GREETING_BYTES]; /* the greeting, then a frame's flags and length */
    size_t n_head;
    bool in_body;
    unsigned char flags;
    size_t length, n_body, capacity; /* capacity grows with what arrives: a claimed length costs nothing */
    unsigned char *body;

    struct zmtp_message *message; /* being put together */
    size_t message_bytes;
    struct zmtp_message *first, *last; /* complete messages, for the caller to take */
    size_t whole_bytes;                /* bytes of these */

    unsigned char *out; /* [n_out] of the greeting, the handshake and heartbeats: to be sent before anything else */
    size_t n_out, out_capacity;
    bool congested; /* set by the caller: bytes wait for the client to read them. Heartbeats get no further answer */
    int ttl_ms;     /* the client's time to live: silence after which it is given up (PING); 0: none */
};

void zmtp_open(struct zmtp *z, const struct zmtp_keys *keys, size_t max_bytes);
void zmtp_close(struct zmtp *z);

/* Process received bytes. -1: the connection is to be ended, after as much of `out` as possible has been sent without
 * waiting. */
int zmtp_feed(struct zmtp *z, const void *data, size_t n);

/* The next whole message, which the caller frees; NULL: there is none. */
struct zmtp_message *zmtp_take(struct zmtp *z);

/* Missing bytes of the current frame, as far as its length is known. */
size_t zmtp_wanted(const struct zmtp *z);

/* Bytes of this connection's unprocessed messages, complete or not. */
size_t zmtp_pending(const struct zmtp *z);

/* The frames of a reply in wire format: its head, and for CURVE the encrypted body, too. *body: the bytes after the
 * head; `text` itself, which stays the caller's, or (CURVE) malloc'ed memory that the caller frees. NULL mechanism:
 * head alone is written. Returns bytes of head, 0 when out of memory. head: [ZMTP_REPLY_HEAD]. */
#define ZMTP_REPLY_HEAD 64
size_t zmtp_reply(struct zmtp *z, bool delimiter, const char *text, size_t bytes, unsigned char *head,
                  unsigned char **body, size_t *body_bytes);

#endif
