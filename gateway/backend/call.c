/* gateway/backend/call.c - the life of a question: choice of a backend, sending, answer, retry elsewhere. See
 * pool.h. */
#include "base/json.h"
#include "gateway/backend/pool_parts.h"
#include "gateway/backend/residence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRIES 4

static struct call **bucket_of(struct pool *p, uint64_t serial)
{
    return &p->bucket[serial & (POOL_BUCKETS - 1)];
}

/* The number at the end of "name.1f". */
static uint64_t serial_of(const char *id)
{
    const char *dot = strrchr(id, '.');
    return dot != NULL ? strtoull(dot + 1, NULL, 16) : 0;
}

struct call *call_find(struct pool *p, const char *id)
{
    uint64_t serial = serial_of(id);
    struct call *c = *bucket_of(p, serial);
    while (c != NULL && (c->serial != serial || strcmp(c->id, id) != 0))
        c = c->in_bucket;
    return c;
}

static void leave_backend(struct call *c)
{
    struct backend *b = c->backend;
    if (b == NULL)
        return;
    if (c->previous != NULL)
        c->previous->next = c->next;
    else
        b->first = c->next;
    if (c->next != NULL)
        c->next->previous = c->previous;
    b->n_calls--;
    b->tokens -= c->setup.tokens;
    c->backend = NULL;
    c->next = c->previous = NULL;
}

static void join_backend(struct call *c, struct backend *b)
{
    c->backend = b;
    c->previous = NULL;
    c->next = b->first;
    if (b->first != NULL)
        b->first->previous = c;
    b->first = c;
    b->n_calls++;
    b->tokens += c->setup.tokens;
}

static void forget(struct pool *p, struct call *c)
{
    struct call **at = bucket_of(p, c->serial);
    while (*at != NULL && *at != c)
        at = &(*at)->in_bucket;
    if (*at == c)
        *at = c->in_bucket;
    leave_backend(c);
    free(c->text);
    free(c->model);
    free(c);
}

/* The call ends with this reply, which is decref'ed. */
static void end_call(struct pool *p, struct call *c, json_t *reply)
{
    struct call_setup s = c->setup;
    forget(p, c);
    s.reply(s.context, reply, true);
    json_decref(reply);
}

static json_t *failure(int code, const char *field, const char *message, int retry_ms)
{
    json_t *text = json_string_nocheck(message); /* a name in it may be cut within a character */
    json_t *reply = json_pack("{s:s, s:i, s:{s:s, s:o}}", "status", "error", "code", code, "error", "field", field,
                              "message", text);
    if (retry_ms > 0)
        (void)json_object_set_new(reply, "retry_after_ms", json_integer(retry_ms));
    return reply;
}

static bool has_less_to_do(const struct backend *a, const struct backend *b)
{
    return a->tokens < b->tokens || (a->tokens <= b->tokens && a->n_calls < b->n_calls);
}

/* a suits the model better: it is loaded there, or fewer models are, or the load is lower. */
static bool suits_better(const struct backend *a, const struct backend *b, const char *model)
{
    bool here = residence_has(a, model), there = residence_has(b, model);
    if (here != there)
        return here;
    int n = here ? 0 : residence_count(a) - residence_count(b);
    return n != 0 ? n < 0 : has_less_to_do(a, b);
}

/* The best of the backends that have the model. `not`: a backend to exclude. */
static struct backend *choose_backend(const struct pool *p, const char *model, const struct backend * not )
{
    struct backend *best = NULL;
    for (struct backend *b = p->first; b != NULL; b = b->next) {
        if (b == not || !backend_takes(b) || backend_model(b, model) == NULL)
            continue;
        if (best == NULL || suits_better(b, best, model))
            best = b;
    }
    return best;
}

/* Do all ready backends serve one and the same model? */
static bool is_only_model(const struct pool *p)
{
    const char *name = NULL;
    for (const struct backend *b = p->first; b != NULL; b = b->next) {
        const json_t *list = json_object_get(b->models, "models");
        const char *first = json_string_value(json_object_get(json_array_get(list, 0), "id"));
        if (!backend_takes(b))
            continue;
        if (json_array_size(list) != 1 || first == NULL || (name != NULL && strcmp(name, first) != 0))
            return false;
        name = first;
    }
    return true;
}

/* A backend serves the model, whether it takes requests now or not. */
static bool is_known(const struct pool *p, const char *model)
{
    const struct backend *b = p->first;
    while (b != NULL && (b->retired || backend_model(b, model) == NULL))
        b = b->next;
    return b != NULL;
}

/* The reason why no backend can be chosen. */
static json_t *no_backend(const struct pool *p, const char *model)
{
    char text[POOL_UNKNOWN_BYTES];
    if (pool_n_ready(p) == 0)
        return failure(503, "", "no backend is ready", 1000);
    if (is_known(p, model))
        return failure(503, "", "no backend that serves this model is ready", 1000);
    pool_say_unknown(p, model, text, sizeof text);
    return failure(404, "model", text, 0);
}

/* The beginning of a message on behalf of the party, for the call. Servers find both in front without parsing it, and
 * name the call if they refuse it unparsed. */
static json_t *begin_message(const struct call *c, const char *party)
{
    json_t *message = json_object();
    if (party[0] != '\0')
        (void)json_object_set_new(message, "on_behalf_of", json_string(party));
    (void)json_object_set_new(message, "request_id", json_string(c->id));
    return message;
}

/* The party for this backend: servers of older versions refuse the field. */
static const char *party_for(const struct call *c, const struct backend *b)
{
    return json_is_true(json_object_get(b->models, "on_behalf_of")) ? c->party : "";
}

static int send_message(struct call *c, struct backend *b, struct err *e)
{
    size_t skipped = party_for(c, b)[0] == '\0' ? c->party_bytes : 0;
    if (c->party_bytes > 0)
        c->text[c->party_bytes] = skipped > 0 ? '{' : ',';
    return connection_send_text(&b->connection, c->text + skipped, c->bytes - skipped, e);
}

/* Sends the call to a backend, or ends it. true: it is in flight. */
static bool dispatch(struct pool *p, struct call *c, struct backend *b)
{
    struct err e = {0};
    if (b == NULL) {
        end_call(p, c, no_backend(p, c->model));
        return false;
    }
    if (c->bytes > b->max_message_bytes) {
        end_call(p, c, failure(413, "", "the request is larger than the backend's --max-message-bytes", 0));
        return false;
    }
    c->n_tries++;
    join_backend(c, b);
    if (send_message(c, b, &e) == 0) {
        residence_sent(b, c->model);
        return true;
    }
    end_call(p, c, failure(502, "", e.text, 0));
    return false;
}

/* The model is named to backends that serve several; others serve only one. */
static bool wants_name(const struct pool *p, const char *model)
{
    for (const struct backend *b = p->first; b != NULL && model[0] != '\0'; b = b->next)
        if (backend_is_shared(b) && backend_model(b, model) != NULL)
            return true;
    return false;
}

static void write_message(struct call *c, const json_t *message)
{
    json_t *whole = begin_message(c, c->party);
    c->party_bytes = c->party[0] != '\0' ? strlen("{\"on_behalf_of\":\"\"") + strlen(c->party) : 0;
    if (json_object_update(whole, (json_t *)message) == 0 &&
        json_object_set_new(whole, "request_id", json_string(c->id)) == 0)
        c->text = json_text(whole, JSON_COMPACT);
    c->bytes = c->text != NULL ? strlen(c->text) : 0;
    json_decref(whole);
}

static struct call *make_call(struct pool *p, const struct call_setup *s)
{
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->setup = *s;
    c->setup.message = NULL;
    c->is_fixed = s->backend != NULL;
    c->model = strdup(s->model);
    c->serial = ++p->serial;
    (void)snprintf(c->id, sizeof c->id, "%.*s.%llx", POOL_NAME_BYTES, s->name, (unsigned long long)c->serial);
    if (wants_name(p, s->model) && json_object_get(s->message, "model") == NULL)
        (void)json_object_set_new(s->message, "model", json_string(s->model));
    (void)snprintf(c->party, sizeof c->party, "%s", s->party);
    write_message(c, s->message);
    if (c->text != NULL && c->model != NULL)
        return c;
    free(c->model);
    free(c->text);
    free(c);
    return NULL;
}

struct call *pool_ask(struct pool *p, const struct call_setup *s)
{
    struct call *c = NULL;
    json_t *wrong = NULL;
    if (json_object_get(s->message, "on_behalf_of") != NULL)
        wrong = failure(400, "on_behalf_of", "unknown field: only the gateway says on whose behalf it asks", 0);
    else if (s->model[0] == '\0' && s->backend == NULL && !is_only_model(p))
        wrong = failure(400, "model", "missing: several models are served, expected the name of one", 0);
    else if ((c = make_call(p, s)) == NULL)
        wrong = failure(500, "", "out of host memory: a request", 0);
    json_decref(s->message);
    if (wrong != NULL) {
        s->reply(s->context, wrong, true);
        json_decref(wrong);
        return NULL;
    }
    c->in_bucket = *bucket_of(p, c->serial);
    *bucket_of(p, c->serial) = c;
    return dispatch(p, c, s->backend != NULL ? s->backend : choose_backend(p, s->model, NULL)) ? c : NULL;
}

void call_cancel(struct call *c)
{
    struct backend *b = c->backend;
    struct err e = {0};
    if (b->connection.up && !b->connection.gone) {
        json_t *message = begin_message(c, party_for(c, b)); /* so it does not overtake the request */
        (void)json_object_set_new(message, "op", json_string("cancel"));
        (void)connection_send(&b->connection, message, &e);
        json_decref(message);
    }
    forget(b->pool, c);
}

/* Retries on another backend, if there is one and nothing of an answer has come yet. */
static bool ask_again(struct pool *p, struct call *c)
{
    struct backend *other =
        c->text != NULL && !c->is_fixed && c->n_tries < MAX_TRIES ? choose_backend(p, c->model, c->backend) : NULL;
    if (other == NULL)
        return false;
    leave_backend(c);
    p->n_retried++;
    (void)dispatch(p, c, other);
    return true;
}

/* An answer that calls for a retry elsewhere: full, or not accepting requests. */
static bool is_refusal(const json_t *reply)
{
    json_int_t code = json_integer_value(json_object_get(reply, "code"));
    return code == 503 || code == 429;
}

/* Does the backend refuse every request, and not only those for one model? */
static bool refuses_all(const json_t *reply)
{
    const char *field = json_string_value(json_object_get(json_object_get(reply, "error"), "field"));
    return json_integer_value(json_object_get(reply, "code")) == 503 && field != NULL && field[0] == '\0';
}

void call_reply(struct pool *p, struct call *c, json_t *reply)
{
    const char *event = json_string_value(json_object_get(reply, "event"));
    bool last = event == NULL || strcmp(event, "final") == 0;
    if (event == NULL && refuses_all(reply))
        backend_refused(c->backend);
    if (last && is_refusal(reply) && ask_again(p, c))
        return;
    if (last) {
        end_call(p, c, json_incref(reply));
        return;
    }
    free(c->text); /* something came: never retried */
    c->text = NULL;
    c->setup.reply(c->setup.context, reply, false);
}

void call_lost(struct pool *p, struct call *c, const char *why)
{
    if (!ask_again(p, c))
        end_call(p, c, failure(502, "", why, 0));
}
