/* gateway/exchange/exchange.c - see exchange.h. */
#include "gateway/exchange/exchange.h"
#include "base/clock.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES_A_TOKEN  4.0 /* estimate for a prompt */
#define GUESSED_TOKENS 256 /* of an answer without a limit */
#define TRIM_BYTES     ((size_t)1 << 20)

/* One question to a backend, for as long as its replies come. */
struct question {
    struct question *next;
    struct exchange *x;
    struct call *call;
    void (*reply)(struct exchange *x, void *context, json_t *reply, bool last);
    void *context;
};

const char *exchange_header(const struct exchange *x, const char *name)
{
    return http_head_get(x->conn->head, name);
}

const char *exchange_body(const struct exchange *x, size_t *bytes)
{
    *bytes = bytes_count(&x->conn->content);
    return *bytes > 0 ? bytes_start(&x->conn->content) : "";
}

json_t *exchange_json(struct exchange *x)
{
    static const struct json_limits limits = {.depth = 64, .values = 2097152, .lists = 65536, .members = 131072};
    struct json_failure failure = {0};
    struct err e = {0};
    size_t bytes = 0;
    const char *text = exchange_body(x, &bytes);
    json_t *root = json_parse_limited(text, bytes, "the body", &limits, &failure, &e);
    struct fault f = {0};
    if (root == NULL)
        f = fault_make(failure.too_large ? 413 : 400, failure.key, "%s", e.text);
    else if (!json_is_object(root))
        f = fault_make(400, "", "the body: found %s, expected an object", json_type_name(root));
    if (f.status == 0)
        return root;
    json_decref(root);
    exchange_fail(x, &f);
    return NULL;
}

void *exchange_state(struct exchange *x, size_t bytes, void (*drop)(void *state))
{
    void *state = calloc(1, bytes);
    if (state == NULL) {
        struct fault f = fault_make(500, "", "out of host memory: a request");
        exchange_fail(x, &f);
        return NULL;
    }
    x->state = state;
    x->drop = drop;
    return state;
}

void exchange_is_text(struct exchange *x, const char *model)
{
    x->tally.is_generate = true;
    (void)snprintf(x->tally.model, sizeof x->tally.model, "%s", model);
}

/* ---------------------------------------------------------------- asking */

static void unlink_question(struct question *q)
{
    struct question **at = &q->x->questions;
    while (*at != NULL && *at != q)
        at = &(*at)->next;
    if (*at == q)
        *at = q->next;
}

static double seconds_of(const json_t *timing, const char *name)
{
    const json_t *ms = json_object_get(timing, name);
    return json_is_number(ms) ? json_number_value(ms) / 1e3 : -1;
}

bool exchange_is_good(const json_t *reply)
{
    const char *status = json_string_value(json_object_get(reply, "status"));
    return status != NULL && strcmp(status, "ok") == 0;
}

/* Notes the figures that a reply contains. */
static void take_tally(struct exchange *x, const json_t *reply, bool last)
{
    struct tally *t = &x->tally;
    const json_t *usage = json_object_get(reply, "usage"), *timing = json_object_get(reply, "timing");
    if (t->first_token < 0 && json_object_get(reply, "choices") != NULL)
        t->first_token = seconds_now() - x->begun;
    if (!last || usage == NULL)
        return;
    t->prompt_tokens += json_integer_value(json_object_get(usage, "prompt_tokens"));
    t->completion_tokens += json_integer_value(json_object_get(usage, "completion_tokens"));
    double prefill = seconds_of(timing, "prefill_ms"), decode = seconds_of(timing, "decode_ms");
    t->queue = seconds_of(timing, "queue_ms");
    t->compute = prefill >= 0 && decode >= 0 ? prefill + decode : -1;
    t->upstream = seconds_of(timing, "total_ms");
}

static void hear(void *context, json_t *reply, bool last)
{
    struct question *q = context;
    struct question kept = *q;
    take_tally(q->x, reply, last);
    if (last) {
        unlink_question(q);
        free(q);
    }
    kept.reply(kept.x, kept.context, reply, last);
}

static double guess_tokens(const struct exchange *x, const json_t *message)
{
    const json_t *most = json_object_get(message, "max_tokens"), *n = json_object_get(message, "n");
    double tokens =
        json_is_integer(most) && json_integer_value(most) > 0 ? (double)json_integer_value(most) : GUESSED_TOKENS;
    double times = json_is_integer(n) && json_integer_value(n) > 0 ? (double)json_integer_value(n) : 1;
    return (double)bytes_count(&x->conn->content) / BYTES_A_TOKEN + tokens * times;
}

void exchange_ask(struct exchange *x, const struct exchange_question *asked)
{
    struct question *q = calloc(1, sizeof *q);
    if (q == NULL || asked->message == NULL) {
        json_t *reply = json_pack("{s:s, s:i, s:{s:s}}", "status", "error", "code", 500, "error", "message",
                                  "out of host memory: a request");
        free(q);
        json_decref(asked->message);
        asked->reply(x, asked->context, reply, true);
        json_decref(reply);
        return;
    }
    *q = (struct question){x->questions, x, NULL, asked->reply, asked->context};
    x->questions = q;
    const struct call_setup s = {.model = asked->model,
                                 .name = x->id,
                                 .party = x->party,
                                 .message = asked->message,
                                 .tokens = guess_tokens(x, asked->message),
                                 .backend = asked->backend,
                                 .reply = hear,
                                 .context = q};
    struct call *call = pool_ask(&x->gateway->pool, &s);
    if (call != NULL) /* else q has been answered and freed */
        q->call = call;
}

/* ---------------------------------------------------------------- answering */

bool exchange_origin_fits(const struct exchange *x, const char *origin)
{
    const char *allowed = x->gateway->allow_origin;
    return allowed != NULL && origin != NULL && (strcmp(allowed, "*") == 0 || strcmp(allowed, origin) == 0);
}

/* Header lines of every answer. */
static void put_fields(const struct exchange *x, struct bytes *b)
{
    bytes_format(b, "x-request-id: %s\r\n", x->id);
    if (x->dialect != NULL && x->dialect->id_field != NULL)
        bytes_format(b, "%s: %s\r\n", x->dialect->id_field, x->id);
    const char *value = x->returned != NULL ? exchange_header(x, x->returned) : NULL;
    if (value != NULL)
        bytes_format(b, "%s: %s\r\n", x->returned, value);
    if (exchange_origin_fits(x, exchange_header(x, "origin")))
        bytes_format(b, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", x->gateway->allow_origin);
    bytes_text(b, x->fields != NULL ? x->fields : "");
}

static void answer_plain(struct exchange *x, int status, const char *type, const char *body, size_t bytes)
{
    struct bytes fields = {0};
    put_fields(x, &fields);
    bytes_format(&fields, "openai-processing-ms: %lld\r\n", (long long)(1e3 * (seconds_now() - x->begun)));
    bytes_append(&fields, "", 1);
    http_answer(x->conn, status, fields.failed ? "" : bytes_start(&fields), type, body, bytes);
    bytes_free(&fields);
}

void exchange_answer(struct exchange *x, int status, const char *type, const char *body, size_t bytes)
{
    if (x->framing == NULL) {
        answer_plain(x, status, type, body, bytes);
        return;
    }
    x->stream_type = type;
    bytes_append(exchange_open_piece(x), body, bytes);
    exchange_close_piece(x);
    http_end(x->conn);
}

void exchange_answer_json(struct exchange *x, int status, json_t *body)
{
    char *text = body != NULL ? json_text(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (text == NULL) {
        struct fault f = fault_make(500, "", "out of host memory: an answer");
        exchange_fail(x, &f);
        return;
    }
    exchange_answer(x, status, "application/json", text, strlen(text));
    free(text);
}

void exchange_fail(struct exchange *x, const struct fault *f)
{
    static const struct dialect openai = {.type = "application/json", .write = fault_write_openai};
    const struct dialect *d = x->dialect != NULL ? x->dialect : &openai;
    struct bytes fields = {0}, body = {0};
    d->write(f, &body);
    put_fields(x, &fields);
    fault_fields(f, &fields);
    if (d->fields != NULL)
        d->fields(f, &fields);
    bytes_append(&fields, "", 1);
    http_answer(x->conn, d->status != NULL ? d->status(f) : f->status, fields.failed ? "" : bytes_start(&fields),
                d->type, bytes_start(&body), bytes_count(&body));
    bytes_free(&fields);
    bytes_free(&body);
}

static void fail_within(struct exchange *x, const struct fault *f)
{
    const struct dialect *d = x->dialect;
    if (x->framing != NULL) {
        x->framing->fault(f, http_open_piece(x->conn));
        http_close_piece(x->conn);
        http_end(x->conn);
        return;
    }
    d->write(f, exchange_open_event(x, d->event));
    exchange_close_event(x);
    exchange_end_events(x, d->stream_end != NULL ? d->stream_end : "");
}

void exchange_fail_anywhere(struct exchange *x, const struct fault *f)
{
    if (x->has_begun)
        fail_within(x, f);
    else if (f->status == 499)
        http_drop(x->conn); /* it was cancelled: the client is gone */
    else
        exchange_fail(x, f);
}

void exchange_fail_reply(struct exchange *x, const json_t *reply)
{
    struct fault f = fault_of_reply(reply);
    exchange_fail_anywhere(x, &f);
}

/* ---------------------------------------------------------------- events */

static void begin_answer(struct exchange *x)
{
    struct bytes fields = {0};
    put_fields(x, &fields);
    bytes_text(&fields, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    if (x->framing != NULL)
        bytes_format(&fields, "X-Amzn-SageMaker-Content-Type: %s\r\n", x->stream_type);
    bytes_append(&fields, "", 1);
    http_begin(x->conn, 200, fields.failed ? "" : bytes_start(&fields),
               x->framing != NULL ? x->framing->type : x->stream_type);
    bytes_free(&fields);
    x->has_begun = true;
}

void exchange_will_stream(struct exchange *x)
{
    x->stream_type = "text/event-stream; charset=utf-8";
    x->last_output = x->gateway->loop.now;
    due_set(&x->gateway->loop, &x->gateway->comments, &x->comment);
}

void exchange_will_stream_raw(struct exchange *x, const char *type)
{
    x->stream_type = type;
}

struct bytes *exchange_open_piece(struct exchange *x)
{
    if (!x->has_begun)
        begin_answer(x);
    x->last_output = x->gateway->loop.now;
    struct bytes *b = http_open_piece(x->conn);
    x->piece = bytes_count(b);
    if (x->framing != NULL)
        x->framing->open(b);
    return b;
}

void exchange_close_piece(struct exchange *x)
{
    if (x->framing != NULL && !x->conn->out.failed)
        x->framing->close(&x->conn->out, x->piece);
    http_close_piece(x->conn);
}

static void write_piece(struct exchange *x, const char *text)
{
    bytes_text(exchange_open_piece(x), text);
    exchange_close_piece(x);
}

struct bytes *exchange_open_event(struct exchange *x, const char *name)
{
    struct bytes *b = exchange_open_piece(x);
    if (name != NULL)
        bytes_format(b, "event: %s\n", name);
    bytes_append(b, "data: ", 6);
    return b;
}

void exchange_close_event(struct exchange *x)
{
    bytes_append(&x->conn->out, "\n\n", 2);
    exchange_close_piece(x);
}

void exchange_event_json(struct exchange *x, const char *name, json_t *event)
{
    char *text = event != NULL ? json_text(event, JSON_COMPACT) : NULL;
    json_decref(event);
    if (text == NULL) {
        x->conn->out.failed = true;
        return;
    }
    bytes_text(exchange_open_event(x, name), text);
    exchange_close_event(x);
    free(text);
}

void exchange_end_events(struct exchange *x, const char *last)
{
    if (!x->has_begun)
        begin_answer(x);
    if (last[0] != '\0')
        write_piece(x, last);
    http_end(x->conn);
}

void gateway_comment(struct due *d)
{
    struct exchange *x = (struct exchange *)((char *)d - offsetof(struct exchange, comment));
    struct gateway *g = x->gateway;
    if (!x->has_begun || g->loop.now - x->last_output >= g->comments.seconds / 2)
        write_piece(x, ": waiting\n\n");
    due_set(&g->loop, &g->comments, &x->comment);
}

/* ---------------------------------------------------------------- the end */

/* The number under which a request is counted: that of the first route with its path, because the path names it in the
 * metrics. */
static size_t counted_route(const struct gateway *g, const struct route *route)
{
    size_t i = 0;
    if (route == NULL)
        return COUNTER_ROUTES - 1;
    while (strcmp(g->routes[i].path, route->path) != 0)
        i++;
    return i;
}

void gateway_over(void *context, struct http_conn *c, bool left)
{
    struct gateway *g = context;
    struct exchange *x = c->user;
    if (x == NULL) /* out of memory */
        return;
    struct tally *t = &x->tally;
    due_unset(&x->comment);
    while (x->questions != NULL) {
        struct question *q = x->questions;
        x->questions = q->next;
        if (q->call != NULL)
            call_cancel(q->call);
        free(q);
    }
    t->status = c->status;
    t->left = left || c->status == 0;
    t->bytes_in = bytes_count(&c->content);
    t->bytes_out = c->bytes_out;
    t->total = seconds_now() - x->begun;
    counters_take(&g->counters, counted_route(g, x->route), t);
    key_counts_take(&g->key_counts, t);
    answer_counts_take(&g->models, t, (double)time(NULL));
    g->counters.running--;
    if (x->entered)
        parties_leave(&g->parties, x->party);
    g->trims = g->trims || t->bytes_in + t->bytes_out > TRIM_BYTES;
    fault_make_utf8(c->head->path);
    const struct request_line line = {
        c->peer, c->head->method, c->head->path, x->id, exchange_header(x, "x-forwarded-for"), t};
    request_log_put(&g->log, &line);
    if (x->drop != NULL)
        x->drop(x->state);
    c->user = NULL;
    free(x);
}
