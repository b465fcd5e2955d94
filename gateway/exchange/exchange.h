/* gateway/exchange/exchange.h - one request and its answer, as the APIs (gateway/api/) see it: what was sent, asking backends,
 * answering whole or by events, failing. An API is a file with functions for struct route. */
#ifndef EXCHANGE_EXCHANGE_H
#define EXCHANGE_EXCHANGE_H

#include "gateway/exchange/fault.h"
#include "gateway/exchange/gateway.h"

#include <jansson.h>

#define EXCHANGE_TAIL_BYTES 512

struct exchange {
    struct gateway *gateway;
    struct http_conn *conn;
    const struct route *route;         /* NULL: none fits */
    char id[POOL_NAME_BYTES + 1];      /* X-Request-Id: the client's, or made */
    char tail[2][EXCHANGE_TAIL_BYTES]; /* what stands for "{}" in the route's path */
    int64_t created;                   /* seconds since 1970 */
    double begun, last_output;
    struct question *questions;
    void *state; /* the API's; freed by drop */
    void (*drop)(void *state);
    bool is_stream, has_begun; /* the answer comes in events; its head is written */
    struct due comment;
    struct tally tally; /* for the log and the metrics */
};

/* ---- what was sent */

const char *exchange_header(const struct exchange *x, const char *lower_case_name);

/* The body, and its length; it is not NUL-terminated. */
const char *exchange_body(const struct exchange *x, size_t *bytes);

/* The body as a JSON object, which the caller decrefs. NULL: the client has been told what is wrong with it. */
json_t *exchange_json(struct exchange *x);

/* ---- asking */

struct exchange_question {
    const char *model;       /* POOL_ANY_MODEL: the one there is */
    json_t *message;         /* docs/protocol.md, without request_id; it is decref'ed */
    struct backend *backend; /* NULL: the pool chooses */
    /* Every message that comes back; `last`: no more. A failure is a reply with "status": "error". */
    void (*reply)(struct exchange *x, void *context, json_t *reply, bool last);
    void *context; /* must live as long as the exchange */
};

/* The reply may come before this returns; then the exchange may be over. */
void exchange_ask(struct exchange *x, const struct exchange_question *q);

/* Is the reply no failure? */
bool exchange_is_good(const json_t *reply);

/* ---- answering: one of these ends the exchange, x must not be used after it */

void exchange_answer(struct exchange *x, int status, const char *type, const char *body, size_t bytes);
void exchange_answer_json(struct exchange *x, int status, json_t *body); /* decrefs it */
void exchange_fail(struct exchange *x, const struct fault *f);
/* What an error of a backend says; before or within a stream: then it is the route's dialect as an event, and the end. */
void exchange_fail_reply(struct exchange *x, const json_t *reply);

/* ---- answering by server-sent events */

/* The answer is to be a stream: comments are sent while the client waits (after the first ten seconds the head is, too). */
void exchange_will_stream(struct exchange *x);

/* "data: " ... : append one line to the buffer. The head is written before the first. */
struct bytes *exchange_open_event(struct exchange *x);
void exchange_close_event(struct exchange *x);
void exchange_event_json(struct exchange *x, json_t *event); /* decrefs it */

/* Ends the exchange. last: "data: [DONE]\n\n", or "". */
void exchange_end_events(struct exchange *x, const char *last);

#endif
