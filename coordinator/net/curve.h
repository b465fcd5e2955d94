/* coordinator/net/curve.h - CURVE on the server's side: a key pair for this job, one for its clients, and the list of
 * client keys that may connect, checked for every new connection (ZAP, ZeroMQ RFC 27). */
#ifndef NET_CURVE_H
#define NET_CURVE_H

#include "base/err.h"

#include <stdbool.h>

#define CURVE_TEXT  41 /* a key as Z85 text, with its NUL */
#define CURVE_BYTES 32

struct curve {
    char public_key[CURVE_TEXT], secret_key[CURVE_TEXT]; /* the server's; the secret one is never written anywhere */
    char client_public[CURVE_TEXT], client_secret[CURVE_TEXT];
    unsigned char (*allowed)[CURVE_BYTES]; /* [n_allowed] public keys of clients */
    int n_allowed;
    void *zap; /* to poll; see curve_answer; NULL: unused */
    unsigned long n_refused;
};

/* New key pairs; the job's client and those of `clients` (a file with a Z85 public key a line, # comments; NULL: none)
 * may connect. zmq_context: of a libzmq socket, bound later, that will ask for the list (curve_answer); NULL: none. */
int curve_open(struct curve *c, void *zmq_context, const char *clients, struct err *e);
void curve_close(struct curve *c);

/* For our own transport: the keys, and the list of clients that may connect. *keys borrows from c. */
struct zmtp_keys;
int curve_keys(const struct curve *c, struct zmtp_keys *keys, struct err *e);

/* Make a libzmq socket a CURVE server with these keys. */
int curve_apply(const struct curve *c, void *socket, struct err *e);

/* Make a socket a CURVE client of such a server, with a key pair on its list. */
int curve_join(void *socket, const char *server_public, const char *public_key, const char *secret_key, struct err *e);

/* Answer the questions that are waiting: may this key connect? */
void curve_answer(struct curve *c);

/* The job's client key pair and the server's public key as JSON in a file of mode 0600. */
int curve_write_client(const struct curve *c, const char *path, struct err *e);

#endif
