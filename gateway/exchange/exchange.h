/* gateway/exchange/exchange.h - one request and its answer, as the APIs (gateway/api/) see it: what was sent,
 * asking backends, answering whole or by events, failing. An API is a file with functions for struct route. */
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
    const struct dialect *dialect;     /* the route's at first */
    const struct framing *framing;     /* of an answer that has no fault; NULL: none */
    char id[POOL_NAME_BYTES + 1];      /* X-Request-Id: the client's, or made */
    char tail[2][EXCHANGE_TAIL_BYTES]; /* the text that stands for "{}" in the route's path */
    int64_t created;                   /* seconds since 1970 */
    double begun, last_output;
    const char *returned; /* a field of the request's head, in lower case, that the answer repeats; NULL: none */
    struct question *questions;
    void *state; /* the API's; freed by drop */
    void (*drop)(void *state);
    const char *fields;      /* further lines of the answer's head, each with CRLF, borrowed; NULL: none */
    const char *stream_type; /* of the content, where the answer comes in pieces; NULL: it does not */
    bool has_begun;          /* the head of a stream is written */
    size_t piece;            /* where, from the start of the output, the open piece begins */
    struct due comment;
    struct tally tally; /* for the log and the metrics */
};

/* ---- what was sent */

const char *exchange_header(const struct exchange *x, const char *lower_case_name);

/* Is it the origin of --allow-origin? NULL is none. */
bool exchange_origin_fits(const struct exchange *x, const char *origin);

/* The body, and its length; it is not NUL-terminated. */
const char *exchange_body(const struct exchange *x, size_t *bytes);

/* The body as a JSON object, which the caller decrefs. NULL: the client has been told what is wrong with it. */
json_t *exchange_json(struct exchange *x);

/* Zeroed memory that lives as long as the exchange, its `state`; drop frees it. NULL: the client has been told. */
void *exchange_state(struct exchange *x, size_t bytes, void (*drop)(void *state));

/* It asks for text of this model: the log and the metrics want to know. */
void exchange_is_text(struct exchange *x, const char *model);

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
/* Fails as a whole, or with an event where a stream has begun. */
void exchange_fail_anywhere(struct exchange *x, const struct fault *f);

/* Passes a backend's error on. Within a stream of events it is one more event, and the end; a stream of
 * something else has to tell of it by itself (has_begun). */
void exchange_fail_reply(struct exchange *x, const json_t *reply);

/* ---- answering in pieces */

/* The answer is to be a stream of server-sent events: comments are sent while the client waits (after the first ten
 * seconds the head is, too). Before asking. */
void exchange_will_stream(struct exchange *x);

/* One line of JSON: open, append to what is returned, close. The head is written before the first. name: "event:
 * NAME" goes before it; NULL: none. */
struct bytes *exchange_open_event(struct exchange *x, const char *name);
void exchange_close_event(struct exchange *x);
void exchange_event_json(struct exchange *x, const char *name, json_t *event); /* decrefs it */

/* The answer is to be a stream of something else, without comments: pieces of this content type. */
void exchange_will_stream_raw(struct exchange *x, const char *type);
struct bytes *exchange_open_piece(struct exchange *x);
void exchange_close_piece(struct exchange *x);

/* Ends the exchange, of both kinds. last: what stands behind all events, "data: [DONE]\n\n"; "". */
void exchange_end_events(struct exchange *x, const char *last);

#endif
