/* protocol/reply_parts.c - see reply_parts.h. */
#include "protocol/reply_parts.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void reply_put(json_t *object, const char *key, json_t *value, bool *good)
{
    if (json_object_set_new(object, key, value) != 0)
        *good = false;
}

void reply_append(json_t *list, json_t *value, bool *good)
{
    if (json_array_append_new(list, value) != 0)
        *good = false;
}

char *reply_dump(json_t *root, bool good, size_t *bytes)
{
    char *text = good ? json_text(root, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(root);
    *bytes = text != NULL ? strlen(text) : 0;
    return text;
}

static json_t *repaired(const char *text, size_t bytes)
{
    char *valid = malloc(3 * bytes + 1);
    json_t *value = valid != NULL ? json_stringn(valid, utf8_repair(valid, 3 * bytes, text, bytes)) : NULL;
    free(valid);
    return value;
}

json_t *reply_string(const char *text, size_t bytes)
{
    if (text == NULL)
        return json_string("");
    return utf8_invalid_at(text, bytes) == bytes ? json_stringn_nocheck(text, bytes) : repaired(text, bytes);
}

json_t *reply_text(const char *text)
{
    return reply_string(text, strlen(text));
}

json_t *reply_ids(const int32_t *id, size_t n, bool *good)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        reply_append(list, json_integer(id[i]), good);
    return list;
}

json_t *reply_finish(const struct reply_choice *c)
{
    return json_string(c->calls && c->finish == FINISH_STOP ? "tool_calls" : finish_name(c->finish));
}

void reply_put_failure(json_t *object, const struct reply_choice *c, bool *good)
{
    if (c->error == NULL)
        return;
    json_t *error = json_object();
    reply_put(error, "code", json_integer(protocol_blame(c->error)), good);
    reply_put(error, "message", reply_text(c->error->text), good);
    reply_put(object, "error", error, good);
}

json_t *reply_token_text(const struct tokenizer *t, int32_t id)
{
    char *text = NULL;
    size_t bytes = 0;
    struct err e = {0};
    if (t == NULL || tokenizer_decode(t, &id, 1, false, &text, &bytes, &e) != 0)
        return t == NULL ? json_null() : NULL;
    json_t *value = reply_string(text, bytes);
    free(text);
    return value;
}

/* The bytes that a token stands for within a text, if they are not its own text: it is a part of a character, a special
 * token, which stands for none, or a word after a space that a text does not begin with. */
static void put_token_bytes(json_t *entry, const struct tokenizer *t, int32_t id, bool *good)
{
    const json_t *text = json_object_get(entry, "token");
    struct text_buffer piece = {0};
    struct err e = {0};
    bool known = t != NULL && tokenizer_token_bytes(t, id, &piece, &e) == 0;
    if (known && (piece.bytes != json_string_length(text) ||
                  (piece.bytes > 0 && memcmp(piece.data, json_string_value(text), piece.bytes) != 0))) {
        json_t *list = json_array();
        for (size_t i = 0; i < piece.bytes; i++)
            reply_append(list, json_integer((unsigned char)piece.data[i]), good);
        reply_put(entry, "bytes", list, good);
    }
    text_free(&piece);
}

static json_t *token_entry(const struct tokenizer *t, int32_t id, float logprob, bool *good)
{
    json_t *entry = json_object();
    reply_put(entry, "token_id", json_integer(id), good);
    reply_put(entry, "token", reply_token_text(t, id), good);
    put_token_bytes(entry, t, id, good);
    reply_put(entry, "logprob", json_logprob(logprob), good);
    return entry;
}

static json_t *logprob_entry(const struct tokenizer *t, const struct sampled *s, int n_top, bool *good)
{
    json_t *entry = token_entry(t, s->token, s->logprob, good), *top = json_array();
    for (int k = 0; k < n_top; k++)
        reply_append(top, token_entry(t, s->top_id[k], s->top_logprob[k], good), good);
    reply_put(entry, "top_logprobs", top, good);
    return entry;
}

json_t *reply_logprobs(const struct tokenizer *t, const struct sampled *s, size_t n, int n_top, bool first_is_null,
                       bool *good)
{
    json_t *list = json_array();
    if (first_is_null)
        reply_append(list, json_null(), good);
    for (size_t i = 0; i < n; i++)
        reply_append(list, logprob_entry(t, &s[i], n_top, good), good);
    return list;
}

json_t *reply_prompt_logprobs(const struct tokenizer *t, const struct reply_choice *c, bool *good)
{
    return reply_logprobs(t, c->prompt_logprobs, c->n_prompt - 1, c->n_prompt_top, true, good);
}

void reply_put_prompt(json_t *object, const struct reply *r, const struct reply_choice *c, bool *good)
{
    if (c->n_prompt > 0 && (r->ids || c->prompt_logprobs != NULL))
        reply_put(object, "prompt_token_ids", reply_ids(c->prompt_id, c->n_prompt, good), good);
    if (c->n_prompt > 0 && c->prompt_logprobs != NULL)
        reply_put(object, "prompt_logprobs", reply_prompt_logprobs(r->tokenizer, c, good), good);
}

static int64_t n_accepted(const struct reply_drafts *d)
{
    int64_t sum = 0;
    for (int i = 0; i < d->n_places; i++)
        sum += d->n_accepted[i];
    return sum;
}

void reply_put_predicted(json_t *usage, const struct reply *r, bool *good)
{
    int64_t accepted = r->drafts != NULL ? n_accepted(r->drafts) : 0;
    if (!r->predicted)
        return;
    json_t *details = json_object();
    reply_put(details, "accepted_prediction_tokens", json_integer(accepted), good);
    reply_put(details, "rejected_prediction_tokens",
              json_integer(r->drafts != NULL ? r->drafts->n_tokens - accepted : 0), good);
    reply_put(usage, "completion_tokens_details", details, good);
}

void reply_put_usage(json_t *root, const struct reply *r, bool *good)
{
    const struct reply_usage *u = r->usage;
    json_t *usage = json_object();
    reply_put(usage, "prompt_tokens", json_integer(u->prompt_tokens), good);
    reply_put(usage, "cached_tokens", json_integer(u->cached_tokens), good);
    reply_put(usage, "completion_tokens", json_integer(u->completion_tokens), good);
    reply_put(usage, "total_tokens", json_integer(u->prompt_tokens + u->completion_tokens), good);
    reply_put_predicted(usage, r, good);
    reply_put(root, "usage", usage, good);
}

json_t *reply_milliseconds(double x)
{
    return json_real(isfinite(x) ? round(x * 1e3) / 1e3 : 0);
}

void reply_put_timing(json_t *root, const struct reply_timing *t, bool *good)
{
    json_t *timing = json_object();
    reply_put(timing, "queue_ms", reply_milliseconds(t->queue), good);
    reply_put(timing, "prefill_ms", reply_milliseconds(t->prefill), good);
    reply_put(timing, "decode_ms", reply_milliseconds(t->decode), good);
    reply_put(timing, "total_ms", reply_milliseconds(t->total), good);
    reply_put(root, "timing", timing, good);
}

static json_t *ratio(int64_t n, int64_t of, double more)
{
    return of > 0 ? json_real(more + (double)n / (double)of) : json_null();
}

/* {"speculative_decoding": {..}}, with vLLM's names */
void reply_put_drafts(json_t *root, const struct reply_drafts *d, bool *good)
{
    if (d == NULL || d->n_places == 0)
        return;
    json_t *metrics = json_object(), *drafts = json_object(), *histogram = json_array();
    int64_t sum = n_accepted(d);
    for (int i = 0; i <= d->n_places; i++) {
        int64_t reached = i > 0 ? d->n_accepted[i - 1] : d->n_steps, next = i < d->n_places ? d->n_accepted[i] : 0;
        reply_append(histogram, json_integer(reached - next), good);
    }
    reply_put(drafts, "mean_acceptance_length", ratio(sum, d->n_steps, 1), good);
    reply_put(drafts, "draft_acceptance_rate", ratio(sum, d->n_tokens, 0), good);
    reply_put(drafts, "acceptance_histogram", histogram, good);
    reply_put(drafts, "num_spec_steps", json_integer(d->n_steps), good);
    reply_put(drafts, "num_accepted_draft_tokens", json_integer(sum), good);
    reply_put(drafts, "num_draft_tokens", json_integer(d->n_tokens), good);
    reply_put(drafts, "num_spec_tokens", json_integer(d->n_places), good);
    reply_put(metrics, "speculative_decoding", drafts, good);
    reply_put(root, "metrics", metrics, good);
}
