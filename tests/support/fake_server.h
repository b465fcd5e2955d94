/* tests/support/fake_server.h - a ROUTER socket on a thread of the test that implements docs/protocol.md as far as a
 * client can tell: it has no model, but the prompt selects its answer. It keeps the messages that it receives. A prompt
 * (its text) selects: "refuse" an error 400 of the field "prompt", "refuse X" of X; "late" an error 503; "wait" nothing
 * until the request is cancelled, then 499 with a choice so far; "silence" nothing at all; "vanish" closes the server's
 * socket; "part" a stream of two events, then an error; "stop text" and "stop id" an end by the text "q", or by id 1;
 * "call" an answer with reasoning, content and two calls, f({"a": "b c"}) and g({}), already parsed; anything else:
 * max_tokens tokens, the words w0 w1 ..., as events if it streams. */
#ifndef TESTS_SUPPORT_FAKE_SERVER_H
#define TESTS_SUPPORT_FAKE_SERVER_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

#define FAKE_MAX_RECEIVED 4096

struct fake_server {
    char endpoint[256];
    const char *model;         /* set before the start; NULL: "fake" */
    json_t *models;            /* set before the start, borrowed: the list of `models`; NULL: the model alone */
    const char *metrics;       /* set before the start: further lines of `metrics`, or NULL */
    const char *_Atomic state; /* in the answer to health; NULL: the word "health" */
    double step_seconds;       /* set before the start: seconds between tokens of a stream; 0: all at once */
    bool knows_parties;        /* set before the start: `models` says that it knows on_behalf_of */
    bool stays;                /* "vanish" is answered like any other prompt */
    bool curve;                /* set before the start: with keys, admitting one client */
    char public_key[41], secret_key[41], client_public[41], client_secret[41];
    void *context, *router, *zap, *control[2];
    pthread_t thread;
    json_t *received[FAKE_MAX_RECEIVED]; /* to be read after fake_server_stop */
    _Atomic int n_received;
    char waiting[200]; /* request_id of "wait"; its client: */
    unsigned char waiting_peer[256];
    int waiting_peer_bytes;
    bool gone;
    struct paced *paced; /* streams that get their tokens step by step */
    double next_step;
};

/* endpoint: to bind, e.g. "tcp://127.0.0.1:*". Dies on failure. */
void fake_server_start(struct fake_server *s, const char *endpoint);

/* Ends the thread; the sockets are closed. */
void fake_server_stop(struct fake_server *s);

/* Frees the received messages as well. */
void fake_server_free(struct fake_server *s);

#endif
