/* gateway/api/responses_request.c - translates a request of /v1/responses to a chat: items become messages, tools
 * functions. */
#include "base/json.h"
#include "gateway/api/chat_parts.h"
#include "gateway/api/responses.h"

#include <stdio.h>
#include <string.h>

static const struct chat_field fields[] = {
    {"input", NULL},
    {"instructions", NULL},
    {"tools", NULL},
    {"tool_choice", NULL},
    {"text", NULL},
    {"reasoning", NULL},
    {"include", NULL},
    {"top_logprobs", NULL},
    {"previous_response_id", NULL},
    {"background", NULL},
    {"truncation", NULL},
    {"max_tool_calls", NULL}, /* of tools that a server runs */
    {"client_metadata", NULL},
    {"max_output_tokens", "max_tokens"},
};

static const char *const text_types[] = {"input_text", "output_text", "text", NULL};

/* ---------------------------------------------------------------- items */

static bool is_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role != NULL && strcmp(role, "assistant") == 0;
}

static void add_message(json_t *messages, const json_t *item, const char *where, struct fault *f)
{
    const char *role = json_string_value(json_object_get(item, "role"));
    json_t *texts = role != NULL ? chat_texts(json_object_get(item, "content"), where, text_types, f) : NULL;
    if (role == NULL)
        (void)chat_wrong(f, where, item, "an item with \"role\" and \"content\", or another \"type\"");
    else if (texts != NULL)
        (void)chat_add(messages, role, texts);
}

/* Consecutive calls, and the text before them, are one turn. */
static void add_call(json_t *messages, const json_t *item, const char *where, struct fault *f)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *id = json_string_value(json_object_get(item, "call_id"));
    const char *name = json_string_value(json_object_get(item, "name"));
    json_t *arguments = json_object_get(item, "arguments");
    if (id == NULL || name == NULL || !json_is_string(arguments))
        (void)chat_wrong(f, where, item, "a function_call with \"call_id\", \"name\" and \"arguments\"");
    else
        chat_add_call(is_assistant(last) ? last : chat_add(messages, "assistant", NULL), id, name,
                      json_incref(arguments));
}

static void add_output(json_t *messages, const json_t *item, const char *where, struct fault *f)
{
    json_t *id = json_object_get(item, "call_id");
    json_t *texts = json_is_string(id) ? chat_texts(json_object_get(item, "output"), where, text_types, f) : NULL;
    if (!json_is_string(id))
        (void)chat_wrong(f, where, id, "a \"call_id\"");
    else if (texts != NULL)
        (void)json_object_set(chat_add(messages, "tool", texts), "tool_call_id", id);
}

static void add_item(json_t *messages, const json_t *item, size_t i, struct fault *f)
{
    char where[60];
    const json_t *type = json_object_get(item, "type");
    (void)snprintf(where, sizeof where, "input[%zu]", i);
    if (type == NULL || chat_is_type(item, "message"))
        add_message(messages, item, where, f);
    else if (chat_is_type(item, "function_call"))
        add_call(messages, item, where, f);
    else if (chat_is_type(item, "function_call_output"))
        add_output(messages, item, where, f);
    else if (!json_is_string(type))
        (void)chat_wrong(f, where, type, "a \"type\"");
    else if (!chat_is_type(item, "reasoning")) /* reasoning items of other models are skipped */
        *f = fault_make(400, where, "%s: items of type \"%.60s\" are not implemented here", where,
                        json_string_value(type));
}

static void add_input(json_t *messages, const json_t *input, struct fault *f)
{
    const json_t *item;
    size_t i;
    if (json_is_string(input))
        (void)chat_add(messages, "user", json_incref((json_t *)input));
    else if (!json_is_array(input))
        (void)chat_wrong(f, "input", input, "a string or a list of items");
    json_array_foreach(json_is_array(input) ? input : NULL, i, item)
    {
        if (f->status == 0)
            add_item(messages, item, i, f);
    }
}

/* ---------------------------------------------------------------- tools and other fields */

/* Server-side tools, and others that agents always send, are skipped. */
static void add_tools(json_t *chat, const json_t *tools, struct fault *f)
{
    json_t *list = json_array();
    const json_t *tool;
    size_t i;
    if (!json_is_array(tools))
        (void)chat_wrong(f, "tools", tools, "a list of tools");
    json_array_foreach(tools, i, tool)
    {
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (!chat_is_type(tool, "function"))
            continue;
        if (name != NULL)
            (void)json_array_append_new(
                list, chat_tool(name, json_object_get(tool, "description"), json_object_get(tool, "parameters")));
        else
            (void)chat_wrong(f, "tools", tool, "a function with a \"name\"");
    }
    (void)json_object_set_new(chat, "tools", list);
}

static void add_choice(json_t *chat, json_t *choice, struct fault *f)
{
    const char *name = json_string_value(json_object_get(choice, "name"));
    if (json_is_string(choice))
        (void)json_object_set(chat, "tool_choice", choice);
    else if (chat_is_type(choice, "function") && name != NULL)
        (void)json_object_set_new(chat, "tool_choice",
                                  json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name));
    else
        (void)chat_wrong(f, "tool_choice", choice, "a word or a function with \"name\"");
}

static void add_format(json_t *chat, const json_t *text, struct fault *f)
{
    const json_t *format = json_object_get(text, "format"), *schema = json_object_get(format, "schema");
    if (!json_is_object(text))
        (void)chat_wrong(f, "text", text, "an object");
    else if (chat_is_type(format, "json_schema") && !json_is_object(schema))
        (void)chat_wrong(f, "text.format.schema", schema, "an object");
    else if (chat_is_type(format, "json_schema"))
        (void)json_object_set_new(
            chat, "response_format",
            json_pack("{s:s, s:{s:O*, s:O*, s:O*, s:O*}}", "type", "json_schema", "json_schema", "name",
                      json_object_get(format, "name"), "schema", json_object_get(format, "schema"), "strict",
                      json_object_get(format, "strict"), "description", json_object_get(format, "description")));
    else if (format != NULL && !json_is_null(format))
        (void)json_object_set(chat, "response_format", (json_t *)format);
}

static void add_reasoning(json_t *chat, const json_t *reasoning, struct fault *f)
{
    json_t *effort = json_object_get(reasoning, "effort");
    if (!json_is_object(reasoning))
        (void)chat_wrong(f, "reasoning", reasoning, "an object");
    else if (effort != NULL && !json_is_null(effort))
        (void)json_object_set(chat, "reasoning_effort", effort);
}

static void add_logprobs(json_t *chat, const json_t *body, struct fault *f)
{
    const json_t *name, *include = json_object_get(body, "include");
    json_t *top = json_object_get(body, "top_logprobs");
    size_t i;
    bool wanted = json_is_integer(top) && json_integer_value(top) > 0;
    if (include != NULL && !json_is_null(include) && !json_is_array(include))
        (void)chat_wrong(f, "include", include, "a list of names");
    json_array_foreach(include, i, name)
    {
        const char *text = json_is_string(name) ? json_string_value(name) : "";
        wanted = wanted || strcmp(text, "message.output_text.logprobs") == 0;
        if (strcmp(text, "message.output_text.logprobs") != 0 && strcmp(text, "reasoning.encrypted_content") != 0)
            *f = fault_make(400, "include", "include[%zu]: \"%.80s\" is not implemented here", i, text);
    }
    if (wanted)
        (void)json_object_set_new(chat, "logprobs", json_true());
    if (top != NULL && !json_is_null(top) && (wanted || !json_is_integer(top)))
        (void)json_object_set(chat, "top_logprobs", top);
}

static bool is_given(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);
    return value != NULL && !json_is_null(value);
}

static void check_fields(const json_t *body, struct fault *f)
{
    const json_t *truncation = json_object_get(body, "truncation"), *background = json_object_get(body, "background");
    if (is_given(body, "previous_response_id")) {
        *f = fault_make(400, "previous_response_id", "previous_response_id: no response is kept here");
        f->code = "previous_response_not_found";
    } else if (is_given(body, "background") && !json_is_false(background)) {
        *f = fault_make(400, "background", "background: not implemented");
    } else if (is_given(body, "truncation") &&
               (!json_is_string(truncation) || strcmp(json_string_value(truncation), "disabled") != 0)) {
        *f = fault_make(400, "truncation", "truncation: not implemented: only \"disabled\" is accepted");
    } else if (is_given(body, "messages")) {
        *f = fault_make(400, "messages", "messages: unknown field");
    } else if (is_given(body, "prompt")) { /* a template that OpenAI keeps */
        *f = fault_make(400, "prompt", "prompt: not implemented");
    }
}

json_t *responses_translate(const json_t *body, struct fault *f)
{
    static const struct {
        const char *name;
        void (*add)(json_t *chat, const json_t *value, struct fault *f);
    } parts[] = {{"tools", add_tools}, {"text", add_format}, {"reasoning", add_reasoning}};
    json_t *chat = json_object(), *messages = json_array();
    check_fields(body, f);
    if (f->status == 0)
        (void)chat_copy_fields(chat, body, fields, sizeof fields / sizeof fields[0], f);
    if (is_given(body, "instructions"))
        (void)chat_add(messages, "system", json_incref(json_object_get(body, "instructions")));
    if (f->status == 0)
        add_input(messages, json_object_get(body, "input"), f);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (f->status == 0 && is_given(body, parts[i].name))
            parts[i].add(chat, json_object_get(body, parts[i].name), f);
    if (f->status == 0 && is_given(body, "tool_choice"))
        add_choice(chat, json_object_get(body, "tool_choice"), f);
    if (f->status == 0)
        add_logprobs(chat, body, f);
    (void)json_object_set_new(chat, "messages", messages);
    if (f->status == 0)
        return chat;
    json_decref(chat);
    return NULL;
}
