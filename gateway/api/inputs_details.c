/* gateway/api/inputs_details.c - tokens and finish reasons, in Hugging Face's terms. */
#include "base/json.h"
#include "gateway/api/inputs.h"

#include <string.h>

static bool ended_by_token(const json_t *choice)
{
    return json_is_integer(json_object_get(choice, "stop_reason"));
}

static const char *finish_of(const json_t *choice)
{
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish == NULL || strcmp(finish, "length") == 0)
        return "length";
    return ended_by_token(choice) ? "eos_token" : "stop_sequence";
}

/* entry: of logprobs; NULL: a token without. */
static json_t *token_of(const struct inputs_call *in, json_t *id, json_t *text, const json_t *entry, bool special)
{
    json_t *token =
        json_pack("{s:O?, s:O?, s:O?}", "id", id, "text", text, in->style->logprob, json_object_get(entry, "logprob"));
    if (in->style->has_special)
        (void)json_object_set_new(token, "special", json_boolean(special));
    return token;
}

static json_t *entry_token(const struct inputs_call *in, const json_t *entry, bool special)
{
    return token_of(in, json_object_get(entry, "token_id"), json_object_get(entry, "token"), entry, special);
}

json_t *inputs_tokens(const struct inputs_call *in, const json_t *choice)
{
    const json_t *content = json_object_get(json_object_get(choice, "logprobs"), "content"), *entry;
    size_t i, n = json_array_size(content);
    json_t *list = json_array();
    json_array_foreach(content, i, entry)
    {
        (void)json_array_append_new(list, entry_token(in, entry, i + 1 == n && ended_by_token(choice)));
    }
    return list;
}

json_t *inputs_top_tokens(const struct inputs_call *in, const json_t *choice)
{
    const json_t *content = json_object_get(json_object_get(choice, "logprobs"), "content"), *entry, *top;
    size_t i, k;
    json_t *all = json_array();
    json_array_foreach(content, i, entry)
    {
        json_t *list = json_array();
        json_array_foreach(json_object_get(entry, "top_logprobs"), k, top)
        {
            (void)json_array_append_new(list, entry_token(in, top, false));
        }
        (void)json_array_append_new(all, list);
    }
    return all;
}

/* The prompt's tokens, of which the first has no log-probability. */
static json_t *prefill_of(const struct inputs_call *in, const json_t *choice)
{
    const json_t *entry;
    size_t i;
    json_t *list = json_array();
    json_array_foreach(json_object_get(choice, "prompt_logprobs"), i, entry)
    {
        (void)json_array_append_new(list,
                                    i > 0 ? entry_token(in, entry, false)
                                          : token_of(in, json_array_get(json_object_get(choice, "prompt_token_ids"), 0),
                                                     json_object_get(choice, "prompt_first_token"), NULL,
                                                     json_is_true(json_object_get(choice, "prompt_first_is_special"))));
    }
    return list;
}

json_t *inputs_details(const struct inputs_call *in, const json_t *choice, const json_t *reply)
{
    json_int_t n = in->streams ? in->n_tokens : (json_int_t)json_array_size(json_object_get(choice, "token_ids"));
    json_t *details = json_pack("{s:s, s:I, s:O?}", "finish_reason", finish_of(choice), "generated_tokens", n, "seed",
                                json_object_get(reply, "seed"));
    if (in->streams) {
        (void)json_object_set(details, "input_length",
                              json_object_get(json_object_get(reply, "usage"), "prompt_tokens"));
        return details;
    }
    (void)json_object_set_new(details, "prefill", prefill_of(in, choice));
    (void)json_object_set_new(details, "tokens", inputs_tokens(in, choice));
    if (in->n_top > 0)
        (void)json_object_set_new(details, "top_tokens", inputs_top_tokens(in, choice));
    return details;
}
