/* gateway/api/inputs.c - see inputs.h: requests, and answers in one piece. */
#include "gateway/api/inputs.h"
#include "base/json.h"
#include "gateway/api/chat_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- requests */

static bool read_flag(const json_t *parameters, const char *name, struct fault *f)
{
    const json_t *value = json_object_get(parameters, name);
    if (value != NULL && !json_is_null(value) && !json_is_boolean(value) && f->status == 0)
        (void)chat_wrong(f, name, value, "true or false");
    return json_is_true(value);
}

/* Texts, one or several. */
static void read_prompts(struct inputs_call *in, json_t *value, struct fault *f)
{
    const json_t *one;
    size_t i;
    in->as_list = in->as_list || json_is_array(value);
    in->prompts = json_is_array(value) ? json_incref(value) : json_pack("[O?]", value);
    if (value == NULL || json_array_size(in->prompts) == 0)
        (void)chat_wrong(f, "inputs", value, "a text or a list of texts");
    json_array_foreach(in->prompts, i, one)
    {
        if (!json_is_string(one) && f->status == 0)
            (void)chat_wrong(f, "inputs", one, "a text or a list of texts");
    }
    if (in->streams && json_array_size(in->prompts) != 1 && f->status == 0)
        *f = fault_make(400, "inputs", "inputs: found %zu texts, expected one in a stream",
                        json_array_size(in->prompts));
}

static void read_top(struct inputs_call *in, const json_t *parameters, struct fault *f)
{
    const json_t *top = json_object_get(parameters, "top_n_tokens");
    if (top == NULL || json_is_null(top))
        return;
    if (!json_is_integer(top) || json_integer_value(top) < 0 || json_integer_value(top) > 20)
        (void)chat_wrong(f, "top_n_tokens", top, "an integer in [0, 20]");
    in->n_top = json_integer_value(top);
}

/* Fields that do not change the answer are accepted. */
static bool is_idle(const char *key, const json_t *value)
{
    return json_is_null(value) || (strcmp(key, "watermark") == 0 && json_is_false(value)) ||
           ((strcmp(key, "stop") == 0 || strcmp(key, "stop_sequences") == 0) && json_is_array(value) &&
            json_array_size(value) == 0);
}

static bool has_any(const json_t *parameters, const char *const *names)
{
    for (; *names != NULL; names++) {
        const json_t *value = json_object_get(parameters, *names);
        if (value != NULL && !json_is_null(value))
            return true;
    }
    return false;
}

static const char *const sampling[] = {"temperature", "top_k", "top_p", "min_p", "typical_p", NULL};

/* Greedy is temperature 0; other sampling parameters then have no effect. */
static void set_sampling(const struct inputs_call *in, json_t *parameters, struct fault *f)
{
    bool sample = read_flag(parameters, "do_sample", f);
    sample = sample || (in->style->values_sample && has_any(parameters, sampling));
    (void)json_object_del(parameters, "do_sample");
    for (size_t i = 0; !sample && sampling[i] != NULL; i++)
        (void)json_object_del(parameters, sampling[i]);
    if (!sample)
        (void)json_object_set_new(parameters, "temperature", json_integer(0));
}

/* The parameters for the backend: a copy, without the fields read here. */
static json_t *read_parameters(struct inputs_call *in, const json_t *given, struct fault *f)
{
    static const char *const lengths[] = {"max_new_tokens", "max_tokens", NULL}, *const stops[] = {
                                                                                     "stop", "stop_sequences", NULL};
    static const struct chat_field here[] = {
        {"details", NULL}, {"decoder_input_details", NULL}, {"return_full_text", NULL}, {"top_n_tokens", NULL}};
    json_t *parameters = json_object(), *value;
    const char *key;
    void *next;
    in->details = read_flag(given, "details", f);
    in->prefill = read_flag(given, "decoder_input_details", f);
    in->full_text = read_flag(given, "return_full_text", f);
    read_top(in, given, f);
    if (f->status == 0)
        (void)chat_copy_fields(parameters, given, here, sizeof here / sizeof here[0], f);
    json_object_foreach_safe(parameters, next, key, value)
    {
        if (is_idle(key, value))
            (void)json_object_del(parameters, key);
    }
    in->has_grammar = in->style->takes_grammar && json_object_get(parameters, "grammar") != NULL;
    if (in->has_grammar)
        inputs_grammar(parameters, f);
    if (json_object_get(parameters, "truncate") != NULL && f->status == 0)
        *f = fault_make(400, "truncate", "truncate: not implemented: inputs are read whole, expected texts that fit");
    if (in->style->keeps_stop && has_any(parameters, stops))
        (void)json_object_set_new(parameters, "include_stop_str_in_output", json_true());
    set_sampling(in, parameters, f);
    if (!has_any(given, lengths))
        (void)json_object_set_new(parameters, "max_new_tokens", json_integer(in->style->max_new_tokens));
    return parameters;
}

json_t *inputs_translate(struct inputs_call *in, const json_t *body, struct fault *f)
{
    json_t *message = json_object(), *value, *given = json_object_get(body, "parameters");
    const char *key;
    in->streams = read_flag(body, "stream", f);
    json_object_foreach((json_t *)body, key, value)
    {
        if (f->status == 0 && strcmp(key, "inputs") != 0 && strcmp(key, "parameters") != 0 &&
            strcmp(key, "stream") != 0 && strcmp(key, "model") != 0 && !json_is_null(value))
            *f = fault_make(400, key, "%s: unknown field", key);
    }
    if (given != NULL && !json_is_null(given) && !json_is_object(given) && f->status == 0)
        (void)chat_wrong(f, "parameters", given, "an object");
    if (f->status == 0)
        read_prompts(in, json_object_get(body, "inputs"), f);
    json_t *parameters = f->status == 0 ? read_parameters(in, given, f) : NULL;
    (void)json_object_set(message, "inputs", json_object_get(body, "inputs"));
    (void)json_object_set_new(message, "parameters", parameters);
    if (in->streams)
        (void)json_object_set_new(message, "stream", json_true());
    if (in->streams || in->details || in->n_top > 0)
        (void)json_object_set_new(message, "logprobs", json_integer(in->n_top));
    if (in->prefill)
        (void)json_object_set_new(message, "prompt_logprobs", json_integer(0));
    if (f->status == 0)
        return message;
    json_decref(message);
    return NULL;
}

/* ---------------------------------------------------------------- answers */

static json_t *answer_of(const struct inputs_call *in, const json_t *reply, size_t i)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), i);
    const json_t *prompt = json_array_get(in->prompts, i), *text = json_object_get(choice, "text");
    struct bytes all = {0};
    if (in->full_text && prompt != NULL)
        bytes_append(&all, json_string_value(prompt), json_string_length(prompt));
    if (json_is_string(text))
        bytes_append(&all, json_string_value(text), json_string_length(text));
    json_t *answer =
        json_pack("{s:s%}", "generated_text", bytes_count(&all) > 0 ? bytes_start(&all) : "", bytes_count(&all));
    if (in->details)
        (void)json_object_set_new(answer, "details", inputs_details(in, choice, reply));
    bytes_free(&all);
    return answer;
}

static void answer_whole(struct exchange *x, void *context, json_t *reply, bool last)
{
    const struct inputs_call *in = context;
    (void)last; /* there is one reply */
    if (!exchange_is_good(reply)) {
        struct fault f = fault_of_reply(reply);
        inputs_rename(in, &f);
        exchange_fail_anywhere(x, &f);
        return;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(in->prompts); i++)
        (void)json_array_append_new(list, answer_of(in, reply, i));
    json_t *answer = in->as_list ? json_incref(list) : json_incref(json_array_get(list, 0));
    json_decref(list);
    exchange_answer_json(x, 200, answer);
}

static void drop(void *state)
{
    struct inputs_call *in = state;
    json_decref(in->prompts);
    json_decref(in->held);
    bytes_free(&in->text);
    free(in);
}

void inputs_answer(struct exchange *x, json_t *body, const struct inputs_style *style, const char *model, bool as_list)
{
    struct inputs_call *in = exchange_state(x, sizeof *in, drop);
    struct fault f = {0};
    if (in == NULL) {
        json_decref(body);
        return;
    }
    in->style = style;
    in->as_list = as_list;
    (void)snprintf(in->model, sizeof in->model, "%s", model);
    json_t *message = inputs_translate(in, body, &f);
    json_decref(body);
    if (message == NULL) {
        exchange_fail(x, &f);
        return;
    }
    if (in->streams && style->stream_type == NULL)
        exchange_will_stream(x);
    else if (in->streams)
        exchange_will_stream_raw(x, style->stream_type);
    const struct exchange_question q = {.model = in->model,
                                        .message = message,
                                        .reply = in->streams ? inputs_stream_reply : answer_whole,
                                        .context = in};
    exchange_ask(x, &q);
}
