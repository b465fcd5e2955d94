/* tests/support/talk.h - a minimal ZeroMQ client of `lockstep serve`, for messages that lockstep-client never sends. */
#ifndef TESTS_SUPPORT_TALK_H
#define TESTS_SUPPORT_TALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct talk_keys { /* for CURVE, in Z85; NULL: none */
    const char *server, *public_key, *secret_key;
};

struct talk {
    void *context, *socket;
};

/* type: ZMQ_REQ or ZMQ_DEALER. id: routing id, NULL: libzmq's own. Dies on failure; does not wait. */
void talk_open(struct talk *t, int type, const char *endpoint, const char *id, const struct talk_keys *keys);
void talk_close(struct talk *t);

/* Sends one frame; printf-like. */
void talk_say(struct talk *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void talk_send(struct talk *t, const void *data, size_t bytes, bool more);

/* Returns the next message's last frame, parsed; NULL: no message within the time (0: none is there), which is longer
 * on a busy machine, or it is not JSON. */
json_t *talk_hear(struct talk *t, double seconds);

/* Sends a message and returns the answer, on a new connection. */
json_t *talk_ask(const char *endpoint, const char *json);

/* Within a case: the message must be answered with code 400, this field at fault, and a message with this part. */
void talk_refused(const char *endpoint, const char *json, const char *field, const char *part);

/* Connects to tcp://...:PORT without libzmq; talk_greeting and talk_ready are the first bytes to send. -1: it
 * failed. */
int talk_connect(const char *endpoint);
#define TALK_GREETING_BYTES 64
#define TALK_READY_BYTES    30
extern const unsigned char talk_greeting[TALK_GREETING_BYTES], talk_ready[TALK_READY_BYTES];

/* Returns the number at a path "usage/prompt_tokens"; -1: there is none. */
double talk_number(const json_t *reply, const char *path);
/* Returns the text at the path; "": there is none. Borrowed. */
const char *talk_text(const json_t *reply, const char *path);

#endif
