/* gateway/api/responses.c - see responses.h: the parts of a response, and answers in one piece. */
#include "gateway/api/responses.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---------------------------------------------------------------- parts */

json_t *response_logprobs(const struct response *r, const json_t *choice)
{
    int64_t offset = 0;
    json_t *all = openai_logprobs(choice, &r->asked, &offset);
    json_t *content = json_object_get(all, "content");
    json_t *list = content != NULL ? json_incref(content) : json_array();
    json_decref(all);
    return list;
}

/* A member of the request, or `missing` if it was not given; missing is stolen. */
static void echo(json_t *object, const json_t *request, const char *name, json_t *missing)
{
    json_t *value = json_object_get(request, name);
    bool given = value != NULL && !json_is_null(value);
    (void)json_object_set(object, name, given ? value : missing);
    json_decref(missing);
}

/* `effort` and `summary` must be present. */
static json_t *reasoning_of(const json_t *request)
{
    json_t *given = json_object_get(request, "reasoning"), *all = json_pack("{s:n, s:n}", "effort", "summary");
    if (json_is_object(given))
        (void)json_object_update(all, given);
    return all;
}

static json_t *text_of(const json_t *request)
{
    json_t *given = json_object_get(request, "text"), *all = json_pack("{s:{s:s}}", "format", "type", "text");
    if (json_is_object(given))
        (void)json_object_update(all, given);
    return all;
}

static void echo_all(json_t *object, const json_t *request)
{
    echo(object, request, "instructions", json_null());
    echo(object, request, "tools", json_array());
    echo(object, request, "tool_choice", json_string("auto"));
    echo(object, request, "parallel_tool_calls", json_true());
    echo(object, request, "temperature", json_real(1));
    echo(object, request, "top_p", json_real(1));
    echo(object, request, "presence_penalty", json_real(0));
    echo(object, request, "frequency_penalty", json_real(0));
    echo(object, request, "top_logprobs", json_integer(0));
    echo(object, request, "max_output_tokens", json_null());
    echo(object, request, "max_tool_calls", json_null());
    echo(object, request, "metadata", json_object());
    echo(object, request, "user", json_null());
    echo(object, request, "safety_identifier", json_null());
    echo(object, request, "prompt_cache_key", json_null());
    (void)json_object_set_new(object, "reasoning", reasoning_of(request));
    (void)json_object_set_new(object, "text", text_of(request));
}

json_t *response_object(const struct exchange *x, const struct response *r, const char *status, json_t *output)
{
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:n, s:s, s:n, s:n, s:s, s:o}", "id", r->id, "object", "response", "created_at",
                  (json_int_t)x->created, "completed_at", "status", status, "error", "incomplete_details", "model",
                  r->asked.model, "output", output != NULL ? output : json_array());
    echo_all(object, r->request);
    json_t *fixed = json_pack("{s:n, s:s, s:b, s:b, s:s, s:n}", "previous_response_id", "truncation", "disabled",
                              "store", 0, "background", 0, "service_tier", "default", "usage");
    (void)json_object_update(object, fixed);
    json_decref(fixed);
    return object;
}

const char *response_status(const json_t *choice)
{
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    return finish != NULL && strcmp(finish, "length") == 0 ? "incomplete" : "completed";
}

static json_t *usage_of(const json_t *reply)
{
    const json_t *usage = json_object_get(reply, "usage");
    json_int_t in = json_integer_value(json_object_get(usage, "prompt_tokens"));
    json_int_t out = json_integer_value(json_object_get(usage, "completion_tokens"));
    return json_pack("{s:I, s:{s:I, s:i}, s:I, s:{s:i}, s:I}", "input_tokens", in, "input_tokens_details",
                     "cached_tokens", json_integer_value(json_object_get(usage, "cached_tokens")), "cache_write_tokens",
                     0, "output_tokens", out, "output_tokens_details", "reasoning_tokens", 0, "total_tokens", in + out);
}

json_t *response_ended(const struct exchange *x, const struct response *r, const json_t *reply, json_t *output)
{
    const char *status = response_status(json_array_get(json_object_get(reply, "choices"), 0));
    json_t *object = response_object(x, r, status, output);
    if (strcmp(status, "incomplete") == 0)
        (void)json_object_set_new(object, "incomplete_details", json_pack("{s:s}", "reason", "max_output_tokens"));
    else
        (void)json_object_set_new(object, "completed_at", json_integer((json_int_t)time(NULL)));
    (void)json_object_set_new(object, "usage", usage_of(reply));
    return object;
}

/* ---------------------------------------------------------------- in one piece */

void response_rename(struct fault *f)
{
    static const struct fault_name names[] = {{"max_tokens", "max_output_tokens", false},
                                              {"messages", "input", true},
                                              {"response_format.json_schema", "text.format", false},
                                              {"response_format", "text.format", false},
                                              {"reasoning_effort", "reasoning.effort", false},
                                              {"tools", "tools", true}}; /* others lie between functions */
    fault_rename(f, names, sizeof names / sizeof names[0]);
}

struct fault response_fault(const json_t *reply)
{
    struct fault f = fault_of_reply(reply);
    response_rename(&f);
    return f;
}

static void answer_whole(struct exchange *x, void *context, json_t *reply, bool last)
{
    struct response *r = context;
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    (void)last; /* there is one reply */
    if (!exchange_is_good(reply)) {
        struct fault f = response_fault(reply);
        exchange_fail_anywhere(x, &f);
        return;
    }
    json_t *logprobs = response_logprobs(r, choice);
    json_t *output = response_output(r, choice, logprobs);
    json_decref(logprobs);
    exchange_answer_json(x, 200, response_ended(x, r, reply, output));
}

static void drop(void *state)
{
    struct response *r = state;
    json_decref(r->request);
    json_decref(r->logprobs);
    json_decref(r->output);
    json_decref(r->call);
    bytes_free(&r->text);
    free(r);
}

/* Makes the backend's message of the body; NULL: the client has been told. */
static json_t *read_body(struct exchange *x, struct response *r)
{
    struct fault f = {0};
    json_t *message = NULL;
    r->request = exchange_json(x);
    if (r->request == NULL)
        return NULL;
    json_t *chat = responses_translate(r->request, &f);
    if (chat != NULL)
        message = openai_translate(x, chat, &r->asked, &f);
    if (chat != NULL && message == NULL)
        response_rename(&f);
    json_decref(chat);
    if (message == NULL)
        exchange_fail(x, &f);
    return message;
}

void responses_create(struct exchange *x)
{
    x->tally.is_generate = true;
    struct response *r = exchange_state(x, sizeof *r, drop);
    json_t *message = r != NULL ? read_body(x, r) : NULL;
    if (message == NULL)
        return;
    r->asked.chat = true;
    r->logprobs = json_array();
    r->output = json_array();
    (void)snprintf(r->id, sizeof r->id, "resp_%s", x->id);
    (void)snprintf(r->name, sizeof r->name, "%s", x->id);
    if (r->asked.stream)
        exchange_will_stream(x);
    const struct exchange_question q = {.model = r->asked.model,
                                        .message = message,
                                        .reply = r->asked.stream ? responses_stream_reply : answer_whole,
                                        .context = r};
    exchange_ask(x, &q);
}
