/* gateway/exchange/exchange.h - one request and its answer, as the APIs (gateway/api/) see it: reading the request,
 * asking backends, answering whole or as events, failing. An API is a file with functions for struct route. */
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
    const struct framing *framing;     /* of an answer without a fault; NULL: none */
    char id[POOL_NAME_BYTES + 1];      /* X-Request-Id: the client's, or generated */
    char party[POOL_PARTY_BYTES];      /* on whose behalf backends are asked; "": nobody's */
    bool entered;                      /* it is counted among its party's requests */
    char tail[2][EXCHANGE_TAIL_BYTES]; /* the text that stands for "{}" in the route's path */
    int64_t created;                   /* seconds since 1970 */
    double begun, last_output;
    const char *returned; /* a request header, in lower case, that the answer repeats; NULL: none */
    struct question *questions;
    void *state; /* the API's; freed by drop */
    void (*drop)(void *state);
    const char *fields;      /* further header lines of the answer, each with CRLF, borrowed; NULL: none */
    const char *stream_type; /* content type of an answer in pieces; NULL: it is whole */
    bool has_begun;          /* the headers of a stream are written */
    size_t piece;            /* offset of the open piece in the output */
    struct due comment;
    struct tally tally; /* for the log and the metrics */
};

/* ---- the request */

const char *exchange_header(const struct exchange *x, const char *lower_case_name);

/* Is it the origin of --allow-origin? NULL is none. */
bool exchange_origin_fits(const struct exchange *x, const char *origin);

/* The body, and its length; it is not NUL-terminated. */
const char *exchange_body(const struct exchange *x, size_t *bytes);

/* The body as a JSON object, which the caller decrefs. NULL: it is invalid, and the client has been told why. */
json_t *exchange_json(struct exchange *x);

/* Zeroed memory that lives as long as the exchange, its `state`; drop frees it. NULL: the client has been told. */
void *exchange_state(struct exchange *x, size_t bytes, void (*drop)(void *state));

/* Notes for log and metrics that the request asks for text of this model. */
void exchange_is_text(struct exchange *x, const char *model);

/* ---- asking */

struct exchange_question {
    const char *model;       /* POOL_ANY_MODEL: the only one */
    json_t *message;         /* docs/protocol.md, without request_id; it is decref'ed */
    struct backend *backend; /* NULL: the pool chooses */
    /* Called with every message that comes back; `last`: no more will come. A failure is a reply with "status":
     * "error". */
    void (*reply)(struct exchange *x, void *context, json_t *reply, bool last);
    void *context; /* must live as long as the exchange */
};

/* The reply may come before this returns; then the exchange may be over. */
void exchange_ask(struct exchange *x, const struct exchange_question *q);

/* Is the reply a success? */
bool exchange_is_good(const json_t *reply);

/* ---- answering: one of these ends the exchange, x must not be used after it */

void exchange_answer(struct exchange *x, int status, const char *type, const char *body, size_t bytes);
void exchange_answer_json(struct exchange *x, int status, json_t *body); /* decrefs it */
void exchange_fail(struct exchange *x, const struct fault *f);
/* Fails as a whole, or with an event if a stream has begun. */
void exchange_fail_anywhere(struct exchange *x, const struct fault *f);

/* Passes a backend's error on. In a stream of events it is one more event, and the end; other streams must report it
 * themselves (has_begun). */
void exchange_fail_reply(struct exchange *x, const json_t *reply);

/* ---- answering in pieces */

/* Makes the answer a stream of server-sent events: comments are sent while the client waits (after ten seconds the
 * headers, too). Call it before asking. */
void exchange_will_stream(struct exchange *x);

/* One line of JSON: open, append to the returned buffer, close. The headers are written before the first. name: "event:
 * NAME" goes before it; NULL: none. */
struct bytes *exchange_open_event(struct exchange *x, const char *name);
void exchange_close_event(struct exchange *x);
void exchange_event_json(struct exchange *x, const char *name, json_t *event); /* decrefs it */

/* Makes the answer a stream of another content type, without comments. */
void exchange_will_stream_raw(struct exchange *x, const char *type);
struct bytes *exchange_open_piece(struct exchange *x);
void exchange_close_piece(struct exchange *x);

/* Ends the exchange, with a stream of either kind. last: the text after all events, "data: [DONE]\n\n"; "". */
void exchange_end_events(struct exchange *x, const char *last);

#endif
