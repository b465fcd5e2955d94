/* gateway/api/messages.c - see messages.h: answers, whole or as events. */
#include "gateway/api/messages.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message that is being made; the exchange's state. */
struct message {
    struct openai_request asked;
    char id[POOL_NAME_BYTES + 16];
    bool has_begun;   /* the stream's first events are sent */
    const char *open; /* type of the open block; NULL: none is open */
    int n_blocks;     /* blocks begun */
};

/* ---------------------------------------------------------------- failures */

static const char *type_of(int status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},  {404, "not_found_error"},
                 {408, "timeout_error"},        {413, "request_too_large"}, {429, "rate_limit_error"},
                 {503, "overloaded_error"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status)
            return types[i].type;
    return status < 500 ? "invalid_request_error" : "api_error";
}

/* Clients search for these words, and then shorten the conversation, or ask for fewer tokens. */
static const char *prefix_of(const struct fault *f)
{
    if (f->code == NULL || strcmp(f->code, "context_length_exceeded") != 0)
        return "";
    bool many_asked = strcmp(f->param, "max_tokens") == 0;
    return many_asked ? "input length and `max_tokens` exceed context limit: " : "prompt is too long: ";
}

static void write_fault(const struct fault *f, struct bytes *to)
{
    char text[sizeof f->message + 64];
    (void)snprintf(text, sizeof text, "%s%s", prefix_of(f), f->message);
    bytes_format(to, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type_of(f->status));
    bytes_json_string(to, text, strlen(text));
    bytes_text(to, "}}");
}

const struct dialect messages_dialect = {
    .type = "application/json", .write = write_fault, .event = "error", .id_field = "request-id"};

/* ---------------------------------------------------------------- answers */

/* With the members that have nothing to say here, but are missed. */
static json_t *usage_of(const json_t *reply)
{
    const json_t *usage = json_object_get(reply, "usage");
    json_int_t cached = json_integer_value(json_object_get(usage, "cached_tokens"));
    return json_pack("{s:I, s:i, s:I, s:I, s:n, s:n, s:n, s:n, s:n}", "input_tokens",
                     json_integer_value(json_object_get(usage, "prompt_tokens")) - cached,
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens", cached, "output_tokens",
                     json_integer_value(json_object_get(usage, "completion_tokens")), "cache_creation", "inference_geo",
                     "output_tokens_details", "server_tool_use", "service_tier");
}

/* The stop reason, and the stop text if one ended it. */
static json_t *stop_of(const json_t *choice)
{
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    json_t *by = json_object_get(choice, "stop_reason");
    const char *why = finish != NULL && strcmp(finish, "length") == 0       ? "max_tokens"
                      : finish != NULL && strcmp(finish, "tool_calls") == 0 ? "tool_use"
                      : json_is_string(by)                                  ? "stop_sequence"
                                                                            : "end_turn";
    return json_pack("{s:s, s:O?, s:n}", "stop_reason", why, "stop_sequence", json_is_string(by) ? by : NULL,
                     "stop_details");
}

/* content, stop and usage are stolen. */
static json_t *message_of(const struct message *m, json_t *content, json_t *stop, json_t *usage)
{
    json_t *message = json_pack("{s:s, s:s, s:s, s:s, s:o, s:n}", "id", m->id, "type", "message", "role", "assistant",
                                "model", m->asked.model, "content", content, "container");
    (void)json_object_update(message, stop);
    (void)json_object_set_new(message, "usage", usage);
    json_decref(stop);
    return message;
}

/* A call. Arguments that are no object, which a model may produce, are kept as a text. */
static json_t *use_of(const json_t *call)
{
    const json_t *function = json_object_get(call, "function"), *text = json_object_get(function, "arguments");
    struct err e = {0};
    json_t *input =
        json_parse(json_is_string(text) ? json_string_value(text) : "", json_string_length(text), "arguments", &e);
    if (!json_is_object(input)) {
        json_decref(input);
        input = json_pack("{s:O?}", "arguments", text);
    }
    return json_pack("{s:s, s:O?, s:O?, s:o}", "type", "tool_use", "id", json_object_get(call, "id"), "name",
                     json_object_get(function, "name"), "input", input);
}

static json_t *text_block(json_t *text)
{
    return json_pack("{s:s, s:O?, s:n}", "type", "text", "text", text, "citations");
}

/* The parts that the backend made of the answer: thoughts, words, calls; or the text. */
static json_t *content_of(const json_t *choice)
{
    const json_t *said = json_object_get(choice, "message"), *call;
    json_t *content = json_array(), *thought = json_object_get(said, "reasoning_content");
    json_t *text = said != NULL ? json_object_get(said, "content") : json_object_get(choice, "text");
    size_t i;
    if (json_is_string(thought))
        (void)json_array_append_new(
            content, json_pack("{s:s, s:O, s:s}", "type", "thinking", "thinking", thought, "signature", ""));
    if (json_is_string(text))
        (void)json_array_append_new(content, text_block(text));
    json_array_foreach(json_object_get(said, "tool_calls"), i, call)
    {
        (void)json_array_append_new(content, use_of(call));
    }
    return content;
}

/* Gives a failure of the backend, or of the chat, the names of this API's fields. */
static void rename_field(struct fault *f)
{
    static const struct fault_name names[] = {{"messages", "messages", true}, /* turns have other indices */
                                              {"response_format.json_schema", "output_config.format", false},
                                              {"response_format", "output_config.format", false},
                                              {"tools[].function.parameters", "tools[].input_schema", false},
                                              {"tools[].function", "tools[]", false}};
    fault_rename(f, names, sizeof names / sizeof names[0]);
}

static void fail_reply(struct exchange *x, const json_t *reply)
{
    struct fault f = fault_of_reply(reply);
    rename_field(&f);
    exchange_fail_anywhere(x, &f);
}

static void answer_whole(struct exchange *x, void *context, json_t *reply, bool last)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    (void)last; /* there is one reply */
    if (!exchange_is_good(reply)) {
        fail_reply(x, reply);
        return;
    }
    exchange_answer_json(x, 200, message_of(context, content_of(choice), stop_of(choice), usage_of(reply)));
}

/* ---------------------------------------------------------------- events */

/* The event contains its name, too. */
static void send_event(struct exchange *x, const char *type, json_t *event)
{
    json_t *all = json_pack("{s:s}", "type", type);
    (void)json_object_update(all, event);
    json_decref(event);
    exchange_event_json(x, type, all);
}

static void close_block(struct exchange *x, struct message *m)
{
    if (m->open != NULL)
        send_event(x, "content_block_stop", json_pack("{s:i}", "index", m->n_blocks - 1));
    m->open = NULL;
}

/* The block is stolen. */
static void open_block(struct exchange *x, struct message *m, const char *type, json_t *block)
{
    close_block(x, m);
    m->open = type;
    send_event(x, "content_block_start", json_pack("{s:i, s:o}", "index", m->n_blocks++, "content_block", block));
}

static bool is_open(const struct message *m, const char *type)
{
    return m->open != NULL && strcmp(m->open, type) == 0;
}

/* More of the open block: {"type": delta, key: text}. */
static void send_more(struct exchange *x, const struct message *m, const char *delta, const char *key, json_t *text)
{
    if (json_string_length(text) > 0)
        send_event(x, "content_block_delta",
                   json_pack("{s:i, s:{s:s, s:O}}", "index", m->n_blocks - 1, "delta", "type", delta, key, text));
}

static void send_text(struct exchange *x, struct message *m, json_t *text)
{
    if (json_string_length(text) > 0 && !is_open(m, "text"))
        open_block(x, m, "text", json_pack("{s:s, s:s}", "type", "text", "text", ""));
    send_more(x, m, "text_delta", "text", text);
}

static void send_thought(struct exchange *x, struct message *m, json_t *text)
{
    if (json_string_length(text) > 0 && !is_open(m, "thinking"))
        open_block(x, m, "thinking", json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
    send_more(x, m, "thinking_delta", "thinking", text);
}

/* The first piece of a call has its name. */
static void send_call(struct exchange *x, struct message *m, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    json_t *id = json_object_get(call, "id");
    if (id != NULL)
        open_block(x, m, "tool_use",
                   json_pack("{s:s, s:O, s:O?, s:{}}", "type", "tool_use", "id", id, "name",
                             json_object_get(function, "name"), "input"));
    if (is_open(m, "tool_use"))
        send_more(x, m, "input_json_delta", "partial_json", json_object_get(function, "arguments"));
}

static void send_choice(struct exchange *x, struct message *m, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta"), *call;
    size_t i;
    if (delta == NULL)
        send_text(x, m, json_object_get(choice, "text"));
    send_thought(x, m, json_object_get(delta, "reasoning_content"));
    send_text(x, m, json_object_get(delta, "content"));
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call)
    {
        send_call(x, m, call);
    }
}

/* A text that is not parsed has one block, open from the beginning. */
static void begin_message(struct exchange *x, struct message *m, const json_t *choice)
{
    json_t *stop = json_pack("{s:n, s:n, s:n}", "stop_reason", "stop_sequence", "stop_details");
    send_event(x, "message_start", json_pack("{s:o}", "message", message_of(m, json_array(), stop, usage_of(NULL))));
    if (json_object_get(choice, "delta") == NULL)
        open_block(x, m, "text", json_pack("{s:s, s:s}", "type", "text", "text", ""));
    send_event(x, "ping", NULL);
}

static void stream_reply(struct exchange *x, void *context, json_t *reply, bool last)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    if (!exchange_is_good(reply)) {
        fail_reply(x, reply);
        return;
    }
    struct message *m = context;
    if (!m->has_begun)
        begin_message(x, m, choice);
    m->has_begun = true;
    send_choice(x, m, choice);
    if (!last)
        return;
    close_block(x, m);
    send_event(x, "message_delta", json_pack("{s:o, s:o}", "delta", stop_of(choice), "usage", usage_of(reply)));
    send_event(x, "message_stop", NULL);
    exchange_end_events(x, "");
}

/* ---------------------------------------------------------------- requests */

/* Makes the backend's message of the body; NULL: the client has been told. */
static json_t *read_body(struct exchange *x, bool needs_limit, struct openai_request *r)
{
    struct fault f = {0};
    json_t *body = exchange_json(x), *message = NULL;
    if (body == NULL)
        return NULL;
    json_t *chat = messages_translate(body, needs_limit, &f);
    json_decref(body);
    if (chat != NULL)
        message = openai_translate(x, chat, r, &f);
    if (chat != NULL && message == NULL)
        rename_field(&f);
    json_decref(chat);
    if (message == NULL)
        exchange_fail(x, &f);
    return message;
}

void messages_create(struct exchange *x)
{
    x->tally.is_generate = true;
    struct message *m = exchange_state(x, sizeof *m, free);
    json_t *message = m != NULL ? read_body(x, true, &m->asked) : NULL;
    if (message == NULL)
        return;
    m->asked.chat = true;
    (void)snprintf(m->id, sizeof m->id, "msg_%s", x->id);
    if (m->asked.stream)
        exchange_will_stream(x);
    const struct exchange_question q = {.model = m->asked.model,
                                        .message = message,
                                        .reply = m->asked.stream ? stream_reply : answer_whole,
                                        .context = m};
    exchange_ask(x, &q);
}

static void counted(struct exchange *x, void *context, json_t *reply, bool last)
{
    (void)context;
    (void)last;
    if (!exchange_is_good(reply))
        fail_reply(x, reply);
    else
        exchange_answer_json(x, 200, json_pack("{s:O?}", "input_tokens", json_object_get(reply, "count")));
}

/* Reads the fields that affect the tokens; others are accepted. */
void messages_count(struct exchange *x)
{
    static const char *const needed[] = {"messages", "tools", "chat_template_kwargs"};
    struct openai_request r = {0};
    json_t *message = read_body(x, false, &r);
    if (message == NULL)
        return;
    json_t *tokenize = json_pack("{s:s}", "op", "tokenize");
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (json_object_get(message, needed[i]) != NULL)
            (void)json_object_set(tokenize, needed[i], json_object_get(message, needed[i]));
    json_decref(message);
    const struct exchange_question q = {.model = r.model, .message = tokenize, .reply = counted};
    exchange_ask(x, &q);
}
