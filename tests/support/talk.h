/* tests/support/talk.h - a minimal ZeroMQ client of `lockstep serve`, for messages that our own client never sends. */
#ifndef TESTS_SUPPORT_TALK_H
#define TESTS_SUPPORT_TALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct talk_keys { /* of CURVE, Z85; NULL: none */
    const char *server, *public_key, *secret_key;
};

struct talk {
    void *context, *socket;
};

/* type: ZMQ_REQ or ZMQ_DEALER. id: routing id, NULL: none of our own. Dies on failure; nothing is waited for. */
void talk_open(struct talk *t, int type, const char *endpoint, const char *id, const struct talk_keys *keys);
void talk_close(struct talk *t);

/* One frame; printf-like. */
void talk_say(struct talk *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void talk_send(struct talk *t, const void *data, size_t bytes, bool more);

/* The next message's last frame, parsed; NULL: nothing came within the time (0: nothing is there), which is longer on a
 * busy machine, or it is no JSON. */
json_t *talk_hear(struct talk *t, double seconds);

/* Sends a message and returns the answer, on a new connection. */
json_t *talk_ask(const char *endpoint, const char *json);

/* A connection to tcp://...:PORT without libzmq; what it sends first are these. -1: it failed. */
int talk_connect(const char *endpoint);
#define TALK_GREETING_BYTES 64
#define TALK_READY_BYTES    30
extern const unsigned char talk_greeting[TALK_GREETING_BYTES], talk_ready[TALK_READY_BYTES];

/* The number at a path "usage/prompt_tokens"; -1 when there is none. */
double talk_number(const json_t *reply, const char *path);
/* The text there; "" when there is none. Borrowed. */
const char *talk_text(const json_t *reply, const char *path);

#endif
