/* protocol/reply.c - see reply.h. */
#include "protocol/reply.h"
#include "protocol/reply_parts.h"
#include "text/tokenizer/tokenizer.h"

#include <math.h>
#include <string.h>

/* {"status", "request_id"} */
static json_t *begin_reply(const char *status, const char *request_id, bool *good)
{
    json_t *root = json_object();
    reply_put(root, "status", json_string(status), good);
    if (request_id != NULL)
        reply_put(root, "request_id", reply_text(request_id), good);
    return root;
}

static json_t *begin_ok(enum protocol_op op, const char *request_id, bool *good)
{
    json_t *root = begin_reply("ok", request_id, good);
    reply_put(root, "op", json_string(protocol_op_name(op)), good);
    return root;
}

static void put_error(json_t *root, const struct protocol_error *error, bool *good)
{
    json_t *what = json_object();
    reply_put(root, "code", json_integer(error->code), good);
    reply_put(what, "field", reply_text(error->field), good);
    reply_put(what, "message", reply_text(error->message), good);
    reply_put(root, "error", what, good);
    if (error->retry_after_ms > 0)
        reply_put(root, "retry_after_ms", json_integer(error->retry_after_ms), good);
}

static void put_logprobs(json_t *object, const struct tokenizer *t, const struct reply_choice *c, bool *good)
{
    if (c->logprobs == NULL)
        return;
    json_t *logprobs = json_object();
    reply_put(logprobs, "content", reply_logprobs(t, c->logprobs, c->n_tokens, c->n_top, false, good), good);
    reply_put(object, "logprobs", logprobs, good);
}

/* ---------------------------------------------------------------- generate */

/* The text or token that ended a choice. Beams have none, since they end in several ways at once. */
static void put_stop_reason(json_t *object, const struct reply_choice *c, bool *good)
{
    if (c->finish != FINISH_STOP || c->has_score || (c->whole && c->stop_text == NULL) ||
        (c->stop_text == NULL && c->n_tokens == 0))
        return;
    reply_put(object, "stop_reason",
              c->stop_text != NULL ? reply_text(c->stop_text) : json_integer(c->token_id[c->n_tokens - 1]), good);
}

/* The prompt's first token, which has no log-probability. */
static void put_first_token(json_t *object, const struct tokenizer *t, int32_t id, bool *good)
{
    reply_put(object, "prompt_first_token", reply_token_text(t, id), good);
    if (t != NULL && tokenizer_is_special(t, id))
        reply_put(object, "prompt_first_is_special", json_true(), good);
}

static json_t *choice_of(const struct reply *r, const struct reply_choice *c, bool with_text, bool at_end, bool *good)
{
    json_t *object = json_object();
    reply_put(object, "index", json_integer(c->index), good);
    if (with_text) {
        reply_put(object, "text", reply_string(c->text, c->bytes), good);
        reply_put(object, "token_ids", reply_ids(c->token_id, c->n_tokens, good), good);
        put_logprobs(object, r->tokenizer, c, good);
    }
    if (at_end)
        reply_put_prompt(object, r, c, good);
    if (at_end && c->prompt_logprobs != NULL && c->n_prompt > 0)
        put_first_token(object, r->tokenizer, c->prompt_id[0], good);
    if (c->said != NULL)
        reply_put(object, at_end ? "message" : "delta", json_incref(c->said), good);
    reply_put(object, "finish_reason", c->finish == FINISH_NONE ? json_null() : reply_finish(c), good);
    reply_put_failure(object, c, good);
    put_stop_reason(object, c, good);
    if (at_end && c->has_score)
        reply_put(object, "score", json_logprob((float)c->score), good);
    return object;
}

static void put_choices(json_t *root, const struct reply *r, bool with_text, bool at_end, bool *good)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_choices; i++)
        reply_append(list, choice_of(r, &r->choice[i], with_text, at_end, good), good);
    reply_put(root, "choices", list, good);
}

static json_t *begin_generate(const struct reply *r, bool *good)
{
    bool failed = r->error != NULL && r->error->code != 0;
    json_t *root = begin_reply(failed ? "error" : "ok", r->request_id, good);
    if (failed)
        put_error(root, r->error, good);
    return root;
}

static json_t *begin_event(const struct reply *r, const char *event, uint64_t seq, bool *good)
{
    json_t *root = begin_generate(r, good);
    reply_put(root, "event", json_string(event), good);
    reply_put(root, "seq", json_integer((json_int_t)seq), good);
    return root;
}

static void put_end(json_t *root, const struct reply *r, bool with_text, bool *good)
{
    if (r->model != NULL)
        reply_put(root, "model", reply_text(r->model), good);
    put_choices(root, r, with_text, true, good);
    if (r->usage != NULL)
        reply_put_usage(root, r, good);
    if (r->timing != NULL)
        reply_put_timing(root, r->timing, good);
    reply_put_drafts(root, r->drafts, good);
    reply_put(root, "seed", json_integer((json_int_t)r->seed), good);
}

char *reply_generate(const struct reply *r, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_generate(r, &good);
    put_end(root, r, true, &good);
    return reply_dump(root, good, bytes);
}

/* Text that was escaped earlier, perhaps megabytes, is copied into the event. Its place is found by the quoted key,
 * which cannot occur within a string, where quotes have a backslash. */
static char *insert_before(char *event, const struct reply_choice *c, size_t *bytes)
{
    static const char key[] = "\"text\":\"";
    size_t at = (size_t)(strstr(event, key) - event) + sizeof key - 1, after = *bytes - at;
    char *both = realloc(event, *bytes + c->n_before + 1);
    if (both == NULL) {
        free(event);
        return NULL;
    }
    memmove(both + at + c->n_before, both + at, after + 1);
    memcpy(both + at, c->before, c->n_before);
    *bytes += c->n_before;
    return both;
}

char *reply_tokens(const struct reply *r, uint64_t seq, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_event(r, "tokens", seq, &good);
    if (r->prompt_tokens > 0)
        reply_put(root, "prompt_tokens", json_integer((json_int_t)r->prompt_tokens), &good);
    put_choices(root, r, true, false, &good);
    char *text = reply_dump(root, good, bytes);
    return text != NULL && r->choice->before != NULL ? insert_before(text, r->choice, bytes) : text;
}

char *reply_characters(const char *text, size_t text_bytes, size_t *bytes)
{
    char *quoted = reply_dump(reply_string(text, text_bytes), true, bytes);
    if (quoted == NULL)
        return NULL;
    *bytes -= 2;
    memmove(quoted, quoted + 1, *bytes);
    quoted[*bytes] = '\0';
    return quoted;
}

char *reply_final(const struct reply *r, uint64_t seq, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_event(r, "final", seq, &good);
    put_end(root, r, false, &good);
    return reply_dump(root, good, bytes);
}

/* ---------------------------------------------------------------- the other operations */

char *reply_error(const char *request_id, const struct protocol_error *error, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_reply("error", request_id, &good);
    put_error(root, error, &good);
    return reply_dump(root, good, bytes);
}

char *reply_cancel(const char *request_id, size_t *bytes)
{
    bool good = true;
    return reply_dump(begin_ok(PROTOCOL_CANCEL, request_id, &good), good, bytes);
}

char *reply_health(const char *request_id, const struct reply_health *h, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_HEALTH, request_id, &good);
    reply_put(root, "protocol", json_integer(PROTOCOL_VERSION), &good);
    reply_put(root, "state", reply_text(h->state), &good);
    reply_put(root, "model", reply_text(h->model), &good);
    reply_put(root, "ranks", json_integer(h->ranks), &good);
    reply_put(root, "groups", json_integer(h->n_replicas), &good);
    reply_put(root, "running", json_integer(h->running), &good);
    reply_put(root, "waiting", json_integer(h->waiting), &good);
    reply_put(root, "kv_usage", json_real(isfinite(h->kv_usage) ? h->kv_usage : 0), &good);
    reply_put(root, "uptime_s", json_real(isfinite(h->uptime_s) ? h->uptime_s : 0), &good);
    return reply_dump(root, good, bytes);
}

char *reply_metrics(const char *request_id, const char *text, size_t text_bytes, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_METRICS, request_id, &good);
    reply_put(root, "content_type", json_string("text/plain; version=0.0.4"), &good);
    reply_put(root, "text", reply_string(text, text_bytes), &good);
    return reply_dump(root, good, bytes);
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? reply_text(text) : json_null();
}

/* A model that is not loaded is described by its state alone. */
static json_t *model_object(const struct reply_model *m, bool *good)
{
    json_t *model = json_object();
    bool opened = m->family != NULL;
    reply_put(model, "id", reply_text(m->name), good);
    if (opened) {
        reply_put(model, "family", reply_text(m->family), good);
        reply_put(model, "dtype", reply_text(m->dtype), good);
    }
    if (opened && m->variant != NULL)
        reply_put(model, "variant", reply_text(m->variant), good);
    reply_put(model, "ranks", json_integer(m->ranks), good);
    reply_put(model, "groups", json_integer(m->n_replicas), good);
    if (opened)
        reply_put(model, "vocab_size", json_integer(m->vocab), good);
    if (m->max_model_len > 0)
        reply_put(model, "max_model_len", json_integer(m->max_model_len), good);
    if (opened)
        reply_put(model, "chat_template", text_or_null(m->chat_template), good);
    reply_put(model, "state", reply_text(m->state), good);
    if (m->bytes < 0)
        return model;
    reply_put(model, "bytes", json_integer(m->bytes), good);
    reply_put(model, "pinned", json_boolean(m->pinned), good);
    reply_put(model, "replicas", json_integer(m->n_ready), good);
    reply_put(model, "running", json_integer(m->users), good);
    reply_put(model, "waiting", json_integer(m->waiters), good);
    reply_put(model, "idle_s", m->idle_s >= 0 ? json_real(m->idle_s) : json_null(), good);
    reply_put(model, "freed_bytes", m->has_freed ? json_integer(m->freed) : json_null(), good);
    if (m->has_freed) {
        reply_put(model, "free_before_bytes", json_integer(m->free_before), good);
        reply_put(model, "free_after_bytes", json_integer(m->free_before + m->freed), good);
    }
    if (m->why != NULL)
        reply_put(model, "reason", reply_text(m->why), good);
    return model;
}

char *reply_models(const char *request_id, const struct reply_model *m, int n, int64_t max_message_bytes, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_MODELS, request_id, &good), *list = json_array();
    for (int i = 0; i < n; i++)
        reply_append(list, model_object(&m[i], &good), &good);
    reply_put(root, "protocol", json_integer(PROTOCOL_VERSION), &good);
    reply_put(root, "max_message_bytes", json_integer(max_message_bytes), &good);
    reply_put(root, "on_behalf_of", json_true(), &good);
    reply_put(root, "models", list, &good);
    return reply_dump(root, good, bytes);
}

char *reply_model(const char *request_id, enum protocol_op op, const struct reply_model *m, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(op, request_id, &good);
    reply_put(root, "model", model_object(m, &good), &good);
    return reply_dump(root, good, bytes);
}

char *reply_tokenize(const char *request_id, const int32_t *id, size_t n, const struct tokenizer *t, bool strings,
                     int max_model_len, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_TOKENIZE, request_id, &good);
    reply_put(root, "count", json_integer((json_int_t)n), &good);
    reply_put(root, "max_model_len", json_integer(max_model_len), &good);
    reply_put(root, "token_ids", reply_ids(id, n, &good), &good);
    json_t *list = strings ? json_array() : NULL;
    for (size_t i = 0; strings && i < n; i++) {
        size_t length = 0;
        const char *text = tokenizer_token_text(t, id[i], &length);
        reply_append(list, text != NULL ? reply_string(text, length) : json_null(), &good);
    }
    if (strings)
        reply_put(root, "token_strs", list, &good);
    return reply_dump(root, good, bytes);
}

char *reply_detokenize(const char *request_id, const char *text, size_t text_bytes, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(PROTOCOL_DETOKENIZE, request_id, &good);
    reply_put(root, "text", reply_string(text, text_bytes), &good);
    return reply_dump(root, good, bytes);
}

char *reply_state(const char *request_id, enum protocol_op op, const char *state, size_t *bytes)
{
    bool good = true;
    json_t *root = begin_ok(op, request_id, &good);
    reply_put(root, "state", reply_text(state), &good);
    return reply_dump(root, good, bytes);
}
