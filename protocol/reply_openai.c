/* protocol/reply_openai.c - bodies of the OpenAI API, for the result lines of batches. See reply_parts.h. */
#include "base/prompt_scores.h"
#include "base/text_places.h"
#include "protocol/reply_parts.h"
#include "text/tokenizer/tokenizer.h"

static void put_likely(json_t *object, const struct tokenizer *t, int32_t id, float logprob, bool *good)
{
    json_t *text = reply_token_text(t, id);
    reply_put(object, json_is_string(text) ? json_string_value(text) : "", json_logprob(logprob), good);
    json_decref(text);
}

/* {token: logprob} of the token itself and of the likeliest. Of two with the same text the likelier one is kept. */
static json_t *likeliest(const struct tokenizer *t, const struct sampled *s, int n_top, bool *good)
{
    json_t *object = json_object();
    put_likely(object, t, s->token, s->logprob, good);
    for (int k = n_top - 1; k >= 0; k--)
        put_likely(object, t, s->top_id[k], s->top_logprob[k], good);
    return object;
}

struct legacy_lists {
    json_t *tokens, *logprobs, *top, *offsets;
    struct text_places places;
};

/* The token's place in the text. A special token stands for no bytes, but may be spelled out there. */
static json_int_t place_of(struct text_places *places, const struct tokenizer *t, int32_t id, const json_t *name)
{
    struct text_buffer piece = {0};
    struct err e = {0};
    bool known = t != NULL && tokenizer_token_bytes(t, id, &piece, &e) == 0 && piece.bytes > 0;
    int64_t place = known ? text_place(places, piece.data, piece.bytes)
                    : json_is_string(name)
                        ? text_place_of_name(places, json_string_value(name), json_string_length(name))
                        : places->begun;
    text_free(&piece);
    return place;
}

static void add_token(struct legacy_lists *l, const struct tokenizer *t, int32_t id, const struct sampled *s, int n_top,
                      bool *good)
{
    json_t *text = reply_token_text(t, id);
    reply_append(l->offsets, json_integer(place_of(&l->places, t, id, text)), good);
    reply_append(l->tokens, text, good);
    reply_append(l->logprobs, s != NULL ? json_logprob(s->logprob) : json_null(), good);
    reply_append(l->top, s != NULL ? likeliest(t, s, n_top, good) : json_null(), good);
}

/* Log-probabilities of completions; with echo the prompt's tokens come first, the very first without a probability. */
static json_t *legacy_logprobs(const struct tokenizer *t, const struct reply_choice *c, bool echo, bool *good)
{
    struct legacy_lists l = {json_array(),
                             json_array(),
                             json_array(),
                             json_array(),
                             {c->text != NULL ? c->text : "", c->text != NULL ? c->bytes : 0, 0, 0}};
    json_t *object = json_object();
    for (size_t i = 0; echo && c->prompt_logprobs != NULL && i < c->n_prompt; i++)
        add_token(&l, t, c->prompt_id[i], i > 0 ? &c->prompt_logprobs[i - 1] : NULL, c->n_prompt_top, good);
    for (size_t i = 0; i < c->n_tokens; i++)
        add_token(&l, t, c->token_id[i], &c->logprobs[i], c->n_top, good);
    reply_put(object, "text_offset", l.offsets, good);
    reply_put(object, "token_logprobs", l.logprobs, good);
    reply_put(object, "tokens", l.tokens, good);
    reply_put(object, "top_logprobs", l.top, good);
    return object;
}

static json_t *chat_logprobs(const struct tokenizer *t, const struct reply_choice *c, bool *good)
{
    json_t *object = json_object();
    reply_put(object, "content", reply_logprobs(t, c->logprobs, c->n_tokens, c->n_top, false, good), good);
    return object;
}

static json_t *message_of(const struct reply_choice *c, bool *good)
{
    if (c->said != NULL)
        return json_incref(c->said);
    json_t *message = json_object();
    reply_put(message, "role", json_string("assistant"), good);
    reply_put(message, "content", reply_string(c->text, c->bytes), good);
    return message;
}

/* With echo the lists of log-probabilities, if there are any, begin with those of the prompt. */
static void put_prompt(json_t *object, const struct reply *r, const struct reply_choice *c, bool *good)
{
    if (r->ids && c->n_prompt > 0)
        reply_put(object, "prompt_token_ids", reply_ids(c->prompt_id, c->n_prompt, good), good);
    if (c->prompt_logprobs == NULL || c->n_prompt == 0 || (r->echo && c->logprobs != NULL))
        return;
    json_t *entries = reply_prompt_logprobs(r->tokenizer, c, good);
    reply_put(object, "prompt_logprobs", prompt_scores(entries), good);
    json_decref(entries);
}

static json_t *choice_of(const struct reply *r, const struct reply_choice *c, bool chat, bool *good)
{
    json_t *object = json_object();
    reply_put(object, "index", json_integer(c->index), good);
    if (chat) {
        reply_put(object, "message", message_of(c, good), good);
    } else {
        reply_put(object, "text", reply_string(c->text, c->bytes), good);
    }
    json_t *logprobs = c->logprobs == NULL ? json_null()
                       : chat              ? chat_logprobs(r->tokenizer, c, good)
                                           : legacy_logprobs(r->tokenizer, c, r->echo, good);
    reply_put(object, "logprobs", logprobs, good);
    if (r->ids)
        reply_put(object, "token_ids", reply_ids(c->token_id, c->n_tokens, good), good);
    if (!chat)
        put_prompt(object, r, c, good);
    reply_put(object, "finish_reason", reply_finish(c), good);
    reply_put_failure(object, c, good);
    if (c->has_score)
        reply_put(object, "score", json_logprob((float)c->score), good);
    return object;
}

static json_t *usage_of(const struct reply *r, bool *good)
{
    const struct reply_usage *u = r->usage;
    json_t *usage = json_object(), *details = json_object();
    reply_put(usage, "prompt_tokens", json_integer(u->prompt_tokens), good);
    reply_put(usage, "completion_tokens", json_integer(u->completion_tokens), good);
    reply_put(usage, "total_tokens", json_integer(u->prompt_tokens + u->completion_tokens), good);
    reply_put(details, "cached_tokens", json_integer(u->cached_tokens), good);
    reply_put(usage, "prompt_tokens_details", details, good);
    reply_put_predicted(usage, r, good);
    return usage;
}

json_t *reply_openai_body(const struct reply *r, bool chat, const char *id, int64_t created, bool *good)
{
    json_t *body = json_object(), *choices = json_array();
    for (int i = 0; i < r->n_choices; i++)
        reply_append(choices, choice_of(r, &r->choice[i], chat, good), good);
    reply_put(body, "id", reply_text(id), good);
    reply_put(body, "object", json_string(chat ? "chat.completion" : "text_completion"), good);
    reply_put(body, "created", json_integer(created), good);
    reply_put(body, "model", reply_text(r->model), good);
    reply_put(body, "choices", choices, good);
    if (chat && r->n_choices > 0)
        put_prompt(body, r, &r->choice[0], good);
    reply_put(body, "usage", usage_of(r, good), good);
    reply_put_timing(body, r->timing, good);
    reply_put_drafts(body, r->drafts, good);
    reply_put(body, "seed", json_integer((json_int_t)r->seed), good);
    return body;
}
