/* coordinator/reply.c - see reply.h. */
#include "coordinator/reply.h"

#include "base/json.h"
#include "coordinator/tokenizer/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Floats come back the same from 9 digits. */
#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9))

/* The calls below take values that may be NULL when memory is out; what is lost then shows in *good. */
static void put(json_t *object, const char *key, json_t *value, bool *good)
{
    if (json_object_set_new(object, key, value) != 0)
        *good = false;
}

static void append(json_t *list, json_t *value, bool *good)
{
    if (json_array_append_new(list, value) != 0)
        *good = false;
}

/* Frees root. */
static char *dump(json_t *root, bool good, size_t *bytes)
{
    char *text = good ? json_dumps(root, DUMP_FLAGS) : NULL;
    json_decref(root);
    *bytes = text != NULL ? strlen(text) : 0;
    return text;
}

/* U+FFFD for every byte that is not part of a character. */
static json_t *repaired(const char *text, size_t bytes)
{
    static const char mark[] = "\xef\xbf\xbd";
    struct text_buffer out = {0};
    struct err e = {0};
    for (size_t at = 0; at < bytes && e.code == ERR_NONE;) {
        size_t good = unicode_invalid_at(text + at, bytes - at);
        (void)text_append(&out, text + at, good, &e);
        at += good;
        if (at < bytes)
            (void)text_append(&out, mark, sizeof mark - 1, &e);
        at++;
    }
    json_t *value = e.code == ERR_NONE ? json_stringn(out.data != NULL ? out.data : "", out.bytes) : NULL;
    text_free(&out);
    return value;
}

static json_t *string(const char *text, size_t bytes)
{
    if (text == NULL)
        return json_string("");
    return unicode_invalid_at(text, bytes) == bytes ? json_stringn_nocheck(text, bytes) : repaired(text, bytes);
}

static json_t *text_of(const char *text)
{
    return string(text, strlen(text));
}

static json_t *id_list(const int32_t *id, size_t n, bool *good)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        append(list, json_integer(id[i]), good);
    return list;
}

/* {"status", "request_id"} */
static json_t *begin(const char *status, const char *request_id, bool *good)
{
    json_t *root = json_object();
    put(root, "status", json_string(status), good);
    if (request_id != NULL)
        put(root, "request_id", text_of(request_id), good);
    return root;
}

static json_t *begin_ok(enum protocol_op op, const char *request_id, bool *good)
{
    json_t *root = begin("ok", request_id, good);
    put(root, "op", json_string(protocol_op_name(op)), good);
    return root;
}

static void put_error(json_t *root, const struct protocol_error *error, bool *good)
{
    json_t *what = json_object();
    put(root, "code", json_integer(error->code), good);
    put(what, "field", text_of(error->field), good);
    put(what, "message", text_of(error->message), good);
    put(root, "error", what, good);
    if (error->retry_after_ms > 0)
        put(root, "retry_after_ms", json_integer(error->retry_after_ms), good);
}

/* ---------------------------------------------------------------- log-probabilities */

/* What a token alone decodes to; a part of a character becomes U+FFFD. */
static json_t *token_text(const struct tokenizer *t, int32_t id)
{
    char *text = NULL;
    size_t bytes = 0;
    struct err e = {0};
    if (t == NULL || tokenizer_decode(t, &id, 1, false, &text, &bytes, &e) != 0)
        return t == NULL ? json_null() : NULL;
    json_t *value = string(text, bytes);
    free(text);
    return value;
}

static json_t *token_entry(const struct tokenizer *t, int32_t id, double logprob, bool *good)
{
    json_t *entry = json_object();
    put(entry, "token_id", json_integer(id), good);
    put(entry, "token", token_text(t, id), good);
    put(entry, "logprob", json_logprob(logprob), good);
    return entry;
}

static json_t *logprob_entry(const struct tokenizer *t, const struct sampled *s, int n_top, bool *good)
{
    json_t *entry = token_entry(t, s->token, (double)s->logprob, good), *top = json_array();
    for (int k = 0; k < n_top; k++)
        append(top, token_entry(t, s->top_id[k], (double)s->top_logprob[k], good), good);
    put(entry, "top_logprobs", top, good);
    return entry;
}

static json_t *logprob_list(const struct tokenizer *t, const struct sampled *s, size_t n, int n_top, bool first_is_null,
                            bool *good)
{
    json_t *list = json_array();
    if (first_is_null)
        append(list, json_null(), good);
    for (size_t i = 0; i < n; i++)
        append(list, logprob_entry(t, &s[i], n_top, good), good);
    return list;
}

static void put_logprobs(json_t *object, const struct tokenizer *t, const struct reply_choice *c, bool *good)
{
    if (c->logprobs == NULL)
        return;
    json_t *logprobs = json_object();
    put(logprobs, "content", logprob_list(t, c->logprobs, c->n_tokens, c->n_top, false, good), good);
    put(object, "logprobs", logprobs, good);
}

static void put_prompt_logprobs(json_t *object, const struct tokenizer *t, const struct reply_choice *c, bool *good)
{
    if (c->prompt_logprobs == NULL || c->n_prompt == 0)
        return;
    put(object, "prompt_token_ids", id_list(c->prompt_id, c->n_prompt, good), good);
    put(object, "prompt_logprobs", logprob_list(t, c->prompt_logprobs, c->n_prompt - 1, c->n_prompt_top, true, good),
        good);
}

/* ---------------------------------------------------------------- generate */

static json_t *choice_of(const struct reply *r, const struct reply_choice *c, bool with_text, bool at_end, bool *good)
{
    json_t *object = json_object();
    put(object, "index", json_integer(c->index), good);
    if (with_text) {
        put(object, "text", string(c->text, c->bytes), good);
        put(object, "token_ids", id_list(c->token_id, c->n_tokens, good), good);
        put_logprobs(object, r->tokenizer, c, good);
    }
    if (at_end)
        put_prompt_logprobs(object, r->tokenizer, c, good);
    put(object, "finish_reason", c->finish == FINISH_NONE ? json_null() : json_string(finish_name(c->finish)), good);
    if (at_end && c->has_score)
        put(object, "score", json_logprob(c->score), good);
    return object;
}

static void put_choices(json_t *root, const struct reply *r, bool with_text, bool at_end, bool *good)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_choices; i++)
        append(list, choice_of(r, &r->choice[i], with_text, at_end, good), good);
    put(root, "choices", list, good);
}

static void put_usage(json_t *root, const struct reply_usage *u, bool *good)
{
    json_t *usage = json_object();
    put(usage, "prompt_tokens", json_integer(u->prompt_tokens), good);
    put(usage, "cached_tokens", json_integer(u->cached_tokens), good);
    put(usage, "completion_tokens", json_integer(u->completion_tokens), good);
    put(usage, "total_tokens", json_integer(u->prompt_tokens + u->completion_tokens), good);
    put(root, "usage", usage, good);
}

static json_t *milliseconds(double x)
{
    return json_real(isfinite(x) ? round(x * 1e3) / 1e3 : 0);
}

static void put_timing(json_t *root, const struct reply_timing *t, bool *good)
{
    json_t *timing = json_object();
    put(timing, "queue_ms", milliseconds(t->queue), good);
    put(timing, "prefill_ms", milliseconds(t->prefill), good);
    put(timing, "decode_ms", milliseconds(t->decode), good);
    put(timing, "total_ms", milliseconds(t->total), good);
    put(root, "timing", timing, good);
}

static json_t *begin_generate(const struct reply *r, bool *good)
{
    bool failed = r->error != NULL && r->error->code != 0;
    json_t *root = begin(failed ? "error" : "ok", r->request_id, good);
    if (failed)
        put_error(root, r->error, good);
    return root;
}

static json_t *begin_event(const struct reply *r, const char *event, uint64_t seq, bool *good)
{
    json_t *root = begin_generate(r, good);
    put(root, "event", json_string(event), good);
    put(root, "seq", json_integer((json_int_t)seq), good);
    return root;
}

static void put_end(json_t *root, const struct reply *r, bool with_text, bool *good)
{
    if (r->model != NULL)
        put(root, "model", text_of(r->model), good);
    put_choices(root, r, with_text, true, good);
    if (r->usage != NULL)
        put_usage(root, r->usage, good);
    if (r->timing != NULL)
        put_timing(root, r->timing, good);
    put(root, "seed", json_integer((json_int_t)r->seed), good);
}

char *reply_generate(const struct reply *r, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_generate(r, &good);
    put_end(root, r, true, &good);
    return dump(root, good, bytes);
}

char *reply_tokens(const struct reply *r, uint64_t seq, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_event(r, "tokens", seq, &good);
    put_choices(root, r, true, false, &good);
    return dump(root, good, bytes);
}

char *reply_final(const struct reply *r, uint64_t seq, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_event(r, "final", seq, &good);
    put_end(root, r, false, &good);
    return dump(root, good, bytes);
}

/* ---------------------------------------------------------------- the other operations */

char *reply_error(const char *request_id, const struct protocol_error *error, size_t *bytes)
{
    bool good = true;
    json_t *root = begin("error", request_id, &good);
    put_error(root, error, &good);
    return dump(root, good, bytes);
}

char *reply_cancel(const char *request_id, size_t *bytes)
{
    bool good = true;
    return dump(begin_ok(PROTOCOL_CANCEL, request_id, &good), good, bytes);
}

char *reply_health(const char *request_id, const struct reply_health *h, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_HEALTH, request_id, &good);
    put(root, "protocol", json_integer(PROTOCOL_VERSION), &good);
    put(root, "state", text_of(h->state), &good);
    put(root, "model", text_of(h->model), &good);
    put(root, "ranks", json_integer(h->ranks), &good);
    put(root, "groups", json_integer(h->groups), &good);
    put(root, "running", json_integer(h->running), &good);
    put(root, "waiting", json_integer(h->waiting), &good);
    put(root, "kv_usage", json_real(isfinite(h->kv_usage) ? h->kv_usage : 0), &good);
    put(root, "uptime_s", json_real(isfinite(h->uptime_s) ? h->uptime_s : 0), &good);
    return dump(root, good, bytes);
}

char *reply_metrics(const char *request_id, const char *text, size_t text_bytes, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_METRICS, request_id, &good);
    put(root, "content_type", json_string("text/plain; version=0.0.4"), &good);
    put(root, "text", string(text, text_bytes), &good);
    return dump(root, good, bytes);
}

char *reply_models(const char *request_id, const struct reply_model *m, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_MODELS, request_id, &good), *model = json_object(), *list = json_array();
    put(model, "id", text_of(m->name), &good);
    put(model, "family", text_of(m->family), &good);
    put(model, "dtype", text_of(m->dtype), &good);
    put(model, "ranks", json_integer(m->ranks), &good);
    put(model, "groups", json_integer(m->groups), &good);
    put(model, "vocab_size", json_integer(m->vocab), &good);
    put(model, "max_model_len", json_integer(m->max_model_len), &good);
    put(model, "chat_template", m->chat_template != NULL ? text_of(m->chat_template) : json_null(), &good);
    append(list, model, &good);
    put(root, "protocol", json_integer(PROTOCOL_VERSION), &good);
    put(root, "max_message_bytes", json_integer(m->max_message_bytes), &good);
    put(root, "models", list, &good);
    return dump(root, good, bytes);
}

char *reply_tokenize(const char *request_id, const int32_t *id, size_t n, const struct tokenizer *t, bool strings,
                     int max_model_len, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_TOKENIZE, request_id, &good);
    put(root, "count", json_integer((json_int_t)n), &good);
    put(root, "max_model_len", json_integer(max_model_len), &good);
    put(root, "token_ids", id_list(id, n, &good), &good);
    json_t *list = strings ? json_array() : NULL;
    for (size_t i = 0; strings && i < n; i++) {
        size_t length = 0;
        const char *text = tokenizer_token_text(t, id[i], &length);
        append(list, text != NULL ? string(text, length) : json_null(), &good);
    }
    if (strings)
        put(root, "token_strs", list, &good);
    return dump(root, good, bytes);
}

char *reply_detokenize(const char *request_id, const char *text, size_t text_bytes, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_DETOKENIZE, request_id, &good);
    put(root, "text", string(text, text_bytes), &good);
    return dump(root, good, bytes);
}

char *reply_state(const char *request_id, enum protocol_op op, const char *state, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(op, request_id, &good);
    put(root, "state", text_of(state), &good);
    return dump(root, good, bytes);
}
