/* client/connection.h - the client's end of the wire: a DEALER socket to `lockstep serve`, where the server is
 * found, CURVE, and noticing that it is gone. One thread. */
#ifndef CLIENT_CONNECTION_H
#define CLIENT_CONNECTION_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define ENDPOINT_BYTES 512

/* Strings are borrowed and may be NULL. */
struct connection_setup {
    const char *endpoint;   /* of ZeroMQ: "tcp://127.0.0.1:5555"; NULL: the rendezvous file's */
    const char *rendezvous; /* file that the server writes when it is ready: endpoint and public key */
    const char
        *client_key; /* file with our key pair and the server's public key, as the server writes it; NULL: no CURVE */
    double seconds;  /* to wait for the connection */
};

struct connection {
    void *context, *socket, *monitor;
    char endpoint[ENDPOINT_BYTES];
    bool up, gone;         /* the handshake is done; the server has hung up since: its replies are lost */
    const char *handshake; /* why the last handshake failed; NULL: none has */
    size_t largest;        /* bytes of the largest message sent */
};

/* Connect, and wait until the server has answered the handshake. A rendezvous file that is not there yet is waited for as
 * long. ERR_COMM: nobody answers, or the keys are refused; ERR_INPUT, ERR_IO: a file. c: zeroed; connection_close it in
 * any case. */
int connection_open(struct connection *c, const struct connection_setup *setup, struct err *e);
void connection_close(struct connection *c);

/* One message, as compact JSON; the message stays the caller's. ERR_COMM: it cannot be taken within a second. */
int connection_send(struct connection *c, const json_t *message, struct err *e);

/* The next message, which the caller decrefs; waits for it up to `seconds` (negative: as long as the server is there).
 * NULL with *e untouched: the time is over, or a signal came. ERR_COMM: the server is gone, or does not speak JSON. */
json_t *connection_receive(struct connection *c, double seconds, struct err *e);

#endif
