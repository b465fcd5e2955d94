/* coordinator/net/zmtp_curve.h - CURVE (ZeroMQ RFC 26), the server's end: a handshake that proves both sides' keys,
 * then messages in boxes. Over libsodium. Pure. */
#ifndef NET_ZMTP_CURVE_H
#define NET_ZMTP_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZMTP_KEY_BYTES   32
#define ZMTP_BOX_BYTES   33 /* bytes that encryption adds to a frame: command name, nonce, authenticator, flags */
#define ZMTP_COOKIE      96
#define ZMTP_WELCOME     168
#define ZMTP_READY_EXTRA 30 /* bytes of READY without its metadata */

struct zmtp_keys {
    unsigned char public_key[ZMTP_KEY_BYTES], secret_key[ZMTP_KEY_BYTES];
    bool (*allows)(void *context, const unsigned char key[ZMTP_KEY_BYTES]);
    void *context;
};

struct zmtp_curve {
    enum zmtp_curve_state { CURVE_HELLO, CURVE_INITIATE, CURVE_DONE } state; /* the client's next command */
    unsigned char client[ZMTP_KEY_BYTES];                                    /* its short-term key */
    unsigned char public_key[ZMTP_KEY_BYTES], secret_key[ZMTP_KEY_BYTES];    /* ours, of this connection */
    unsigned char shared[ZMTP_KEY_BYTES];
    unsigned char cookie[ZMTP_COOKIE];
    uint64_t nonce, client_nonce; /* the last one used, by each side */
};

void zmtp_curve_close(struct zmtp_curve *c);

/* Answers the client's HELLO with WELCOME in out[ZMTP_WELCOME]. -1: invalid, or for another server's key. */
int zmtp_curve_hello(struct zmtp_curve *c, const struct zmtp_keys *keys, const unsigned char *command, size_t n,
                     unsigned char *out);

/* The client's INITIATE. *metadata, *n_metadata: its properties, within `command`, which is decrypted in place. Returns
 * 0; -1: invalid; 1: valid, but the client's key is not on the list. */
int zmtp_curve_initiate(struct zmtp_curve *c, const struct zmtp_keys *keys, unsigned char *command, size_t n,
                        const unsigned char **metadata, size_t *n_metadata);

/* Our READY with these properties into out[n + ZMTP_READY_EXTRA]; returns its bytes. */
size_t zmtp_curve_ready(struct zmtp_curve *c, const unsigned char *metadata, size_t n, unsigned char *out);

/* Decrypts a frame after the handshake in place: *flags (1: more, 2: command) and the plain text. -1: forged. */
int zmtp_curve_open(struct zmtp_curve *c, unsigned char *frame, size_t n, unsigned char *flags, unsigned char **plain,
                    size_t *n_plain);

/* The reverse, into out[n + ZMTP_BOX_BYTES]. */
void zmtp_curve_seal(struct zmtp_curve *c, unsigned char flags, const void *plain, size_t n, unsigned char *out);

#endif
