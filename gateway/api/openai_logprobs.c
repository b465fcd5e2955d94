/* gateway/api/openai_logprobs.c - translates the log-probabilities of docs/protocol.md to those of OpenAI's two
 * APIs. */
#include "base/text_places.h"
#include "gateway/api/openai.h"

#include <stdio.h>
#include <string.h>

/* The text of a token, or "token_id:5". */
static json_t *name_of(const json_t *entry, const struct openai_request *r)
{
    char text[40];
    if (!r->ids_as_tokens)
        return json_incref(json_object_get(entry, "token"));
    (void)snprintf(text, sizeof text, "token_id:%lld",
                   (long long)json_integer_value(json_object_get(entry, "token_id")));
    return json_string(text);
}

/* ---------------------------------------------------------------- chats */

/* The bytes of a token, or of a special token's name; null if a part of a character comes without its bytes. */
static json_t *bytes_of(const json_t *entry)
{
    const char *text = json_string_value(json_object_get(entry, "token"));
    if (json_array_size(json_object_get(entry, "bytes")) > 0)
        return json_incref(json_object_get(entry, "bytes"));
    if (text == NULL || strstr(text, "\xef\xbf\xbd") != NULL)
        return json_null();
    json_t *list = json_array();
    for (; *text != '\0'; text++)
        (void)json_array_append_new(list, json_integer((unsigned char)*text));
    return list;
}

static json_t *chat_entry(const json_t *entry, const struct openai_request *r)
{
    return json_pack("{s:o, s:O?, s:o}", "token", name_of(entry, r), "logprob", json_object_get(entry, "logprob"),
                     "bytes", bytes_of(entry));
}

static json_t *chat_logprobs(const json_t *content, const struct openai_request *r)
{
    json_t *list = json_array();
    const json_t *entry, *top;
    size_t i, k;
    json_array_foreach(content, i, entry)
    {
        json_t *one = chat_entry(entry, r), *best = json_array();
        json_array_foreach(json_object_get(entry, "top_logprobs"), k, top)
        {
            (void)json_array_append_new(best, chat_entry(top, r));
        }
        (void)json_object_set_new(one, "top_logprobs", best);
        (void)json_array_append_new(list, one);
    }
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

/* ---------------------------------------------------------------- completions */

struct legacy {
    json_t *tokens, *logprobs, *top, *offsets;
    struct text_places places;
};

/* {text: logprob} of the likeliest, and of the token itself. If two tokens have one text, the likelier one stays. */
static json_t *likeliest_tokens(const json_t *entry, const struct openai_request *r)
{
    json_t *object = json_object(), *name = name_of(entry, r);
    const json_t *list = json_object_get(entry, "top_logprobs");
    (void)json_object_set(object, json_string_value(name), json_object_get(entry, "logprob"));
    for (size_t k = json_array_size(list); k > 0; k--) {
        const json_t *top = json_array_get(list, k - 1);
        json_t *text = name_of(top, r);
        (void)json_object_set(object, json_string_value(text), json_object_get(top, "logprob"));
        json_decref(text);
    }
    json_decref(name);
    return object;
}

/* The token's place in the text. A special token, which has no bytes, may be spelled out there. */
static int64_t place_of(struct text_places *places, const json_t *entry)
{
    const json_t *text = json_object_get(entry, "token"), *bytes = json_object_get(entry, "bytes");
    const char *name = json_is_string(text) ? json_string_value(text) : "";
    char piece[256];
    size_t n = json_array_size(bytes) < sizeof piece ? json_array_size(bytes) : sizeof piece;
    for (size_t i = 0; i < n; i++)
        piece[i] = (char)json_integer_value(json_array_get(bytes, i));
    if (n > 0)
        return text_place(places, piece, n);
    return bytes != NULL ? text_place_of_name(places, name, json_string_length(text))
                         : text_place(places, name, json_string_length(text));
}

static void add_token(struct legacy *l, const json_t *entry, const struct openai_request *r)
{
    (void)json_array_append_new(l->offsets, json_integer((json_int_t)place_of(&l->places, entry)));
    (void)json_array_append_new(l->tokens, name_of(entry, r));
    (void)json_array_append(l->logprobs, json_object_get(entry, "logprob"));
    (void)json_array_append_new(l->top, likeliest_tokens(entry, r));
}

/* The very first token of a prompt, which has no log-probability, and which the text may lack. */
static void add_first_token(struct legacy *l, const json_t *choice, const struct openai_request *r)
{
    json_t *text = json_object_get(choice, "prompt_first_token");
    json_t *id = json_array_get(json_object_get(choice, "prompt_token_ids"), 0);
    json_t *entry = json_pack("{s:o, s:O*, s:[]}", "token", text != NULL ? json_incref(text) : json_string(""),
                              "token_id", id, "bytes");
    (void)json_array_append_new(l->offsets, json_integer((json_int_t)place_of(&l->places, entry)));
    (void)json_array_append_new(l->tokens, name_of(entry, r));
    (void)json_array_append_new(l->logprobs, json_null());
    (void)json_array_append_new(l->top, json_null());
    json_decref(entry);
}

static json_t *legacy_logprobs(const json_t *choice, const json_t *content, const struct openai_request *r,
                               int64_t *offset)
{
    const json_t *text = json_object_get(choice, "text"), *entry;
    struct legacy l = {json_array(),
                       json_array(),
                       json_array(),
                       json_array(),
                       {json_is_string(text) ? json_string_value(text) : "", json_string_length(text), 0, *offset}};
    size_t i;
    json_array_foreach(r->echo ? json_object_get(choice, "prompt_logprobs") : NULL, i, entry)
    {
        if (i == 0)
            add_first_token(&l, choice, r);
        else
            add_token(&l, entry, r);
    }
    json_array_foreach(content, i, entry)
    {
        add_token(&l, entry, r);
    }
    *offset = l.places.begun;
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", l.tokens, "token_logprobs", l.logprobs, "top_logprobs", l.top,
                     "text_offset", l.offsets);
}

json_t *openai_logprobs(const json_t *choice, const struct openai_request *r, int64_t *offset)
{
    const json_t *content = json_object_get(json_object_get(choice, "logprobs"), "content");
    if (content == NULL)
        return json_null();
    return r->chat ? chat_logprobs(content, r) : legacy_logprobs(choice, content, r, offset);
}
