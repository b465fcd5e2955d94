/* client/connection.h - the client's connection: a DEALER socket to `lockstep serve`, the search for the server, CURVE,
 * and the detection that the server is gone. One thread. */
#ifndef CLIENT_CONNECTION_H
#define CLIENT_CONNECTION_H

#include "base/err.h"
#include "client/resolve.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define ENDPOINT_BYTES 512

/* Strings are borrowed and may be NULL. */
struct connection_setup {
    const char *endpoint;   /* of ZeroMQ: "tcp://127.0.0.1:5555"; NULL: the rendezvous file's */
    const char *rendezvous; /* file that the server writes when it is ready: endpoint and public key */
    const char *client_key; /* file with our key pair and the server's public key, as the server writes it; NULL: no
                               CURVE */
    double seconds;         /* seconds to wait for the connection */
};

struct connection {
    void *context, *socket, *monitor;
    char endpoint[ENDPOINT_BYTES];
    struct resolve host;   /* resolved before the socket connects */
    bool connects;         /* the socket does */
    bool up, gone;         /* the handshake is done; the server has hung up since, and its replies are lost */
    const char *handshake; /* reason why the last handshake failed; NULL: none failed */
    size_t largest;        /* bytes of the largest message sent */
};

/* Connects, and waits until the server has answered the handshake. A missing rendezvous file is waited for as long.
 * ERR_COMM: no answer, the host is unknown, or the keys are refused; ERR_INPUT, ERR_IO: a file. c: zeroed; call
 * connection_close in any case. */
int connection_open(struct connection *c, const struct connection_setup *setup, struct err *e);
void connection_close(struct connection *c);

/* The same for an event loop, without waiting. A rendezvous file must exist; connection_look sets `up` and `gone`. A
 * host that cannot be resolved is tried again for ever; meanwhile host.why is the reason. */
int connection_begin(struct connection *c, const struct connection_setup *setup, struct err *e);

/* Descriptors of ZeroMQ (ZMQ_FD) that become readable when connection_look or connection_take may have news. Call both
 * until they have none before waiting for a descriptor again. */
void connection_descriptors(const struct connection *c, int *messages, int *state);

/* Updates the state of the connection: host, up, gone, handshake. */
void connection_look(struct connection *c);

/* The next pending message, which the caller decrefs. NULL with *e untouched: there is none. */
json_t *connection_take(struct connection *c, struct err *e);

/* connection_close, without waiting for unsent messages. */
void connection_drop(struct connection *c);

/* Sends one message unchanged. It never waits once the connection is up. */
int connection_send_text(struct connection *c, const char *text, size_t bytes, struct err *e);

/* Sends one message as compact JSON; the message stays the caller's. ERR_COMM: it cannot be sent within a second. */
int connection_send(struct connection *c, const json_t *message, struct err *e);

/* The next message, which the caller decrefs; waits for it up to `seconds` (negative: as long as the server is there).
 * NULL with *e untouched: timeout, or a signal came. ERR_COMM: the server is gone, or does not speak JSON. */
json_t *connection_receive(struct connection *c, double seconds, struct err *e);

#endif
