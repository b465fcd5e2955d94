/* gateway/api/messages_request.c - translates a request of Anthropic's API to a chat: turns in blocks become messages,
 * tools become functions. */
#include "base/json.h"
#include "gateway/api/chat_parts.h"
#include "gateway/api/messages.h"

#include <stdio.h>
#include <string.h>

#define ATTRIBUTION "x-anthropic-billing-header:" /* changes with every request; not meant for the model */

static const struct chat_field fields[] = {
    {"messages", NULL},
    {"system", NULL},
    {"tools", NULL},
    {"tool_choice", NULL},
    {"thinking", NULL},
    {"metadata", NULL},
    {"service_tier", NULL},
    {"inference_geo", NULL},
    {"output_config", NULL},
    {"cache_control", NULL},
    {"context_management", NULL},
};

static const char *const text_types[] = {"text", NULL};

/* ---------------------------------------------------------------- turns */

static void add_system(json_t *messages, const json_t *system, const char *where, struct fault *f)
{
    json_t *texts = chat_texts(system, where, text_types, f);
    for (size_t i = json_array_size(texts); i > 0; i--) {
        const char *text = json_string_value(json_object_get(json_array_get(texts, i - 1), "text"));
        if (strncmp(text, ATTRIBUTION, strlen(ATTRIBUTION)) == 0)
            (void)json_array_remove(texts, i - 1);
    }
    if (json_array_size(texts) > 0)
        (void)chat_add(messages, "system", texts);
    else
        json_decref(texts);
}

/* A function's result, which may have no content. */
static void add_result(json_t *messages, const json_t *block, const char *where, struct fault *f)
{
    const json_t *id = json_object_get(block, "tool_use_id"), *content = json_object_get(block, "content");
    json_t *texts = content != NULL ? chat_texts(content, where, text_types, f) : json_string("");
    if (!json_is_string(id))
        (void)chat_wrong(f, where, id, "a \"tool_use_id\"");
    if (texts != NULL)
        (void)json_object_set(chat_add(messages, "tool", texts), "tool_call_id", (json_t *)id);
}

static void add_use(json_t *message, const json_t *block, const char *where, struct fault *f)
{
    const char *id = json_string_value(json_object_get(block, "id"));
    const char *name = json_string_value(json_object_get(block, "name"));
    json_t *input = json_object_get(block, "input");
    if (id == NULL || name == NULL || !json_is_object(input))
        (void)chat_wrong(f, where, block, "a tool_use with \"id\", \"name\" and \"input\"");
    else
        chat_add_call(message, id, name, json_incref(input));
}

static bool is_role(const json_t *message, const char *role)
{
    const char *found = json_string_value(json_object_get(message, "role"));
    return found != NULL && strcmp(found, role) == 0;
}

/* The message of this turn: earlier ones are unchanged. */
static json_t *own_message(json_t *messages, size_t before, const char *role)
{
    size_t n = json_array_size(messages);
    json_t *last = n > before ? json_array_get(messages, n - 1) : NULL;
    return is_role(last, role) ? last : chat_add(messages, role, NULL);
}

static void add_text(json_t *message, const json_t *block)
{
    if (!json_is_array(json_object_get(message, "content")))
        (void)json_object_set_new(message, "content", json_array());
    (void)json_array_append_new(json_object_get(message, "content"),
                                json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(block, "text")));
}

/* The template receives the assistant's thoughts as one text. */
static void add_thought(json_t *message, const json_t *block)
{
    const json_t *before = json_object_get(message, "reasoning_content"), *more = json_object_get(block, "thinking");
    if (json_is_string(more))
        (void)json_object_set_new(
            message, "reasoning_content",
            json_sprintf("%s%s", json_is_string(before) ? json_string_value(before) : "", json_string_value(more)));
}

static void add_block(json_t *messages, size_t before, bool user, const json_t *block, const char *where,
                      struct fault *f)
{
    const char *role = user ? "user" : "assistant", *type = json_string_value(json_object_get(block, "type"));
    if (chat_is_type(block, "text") && json_is_string(json_object_get(block, "text")))
        add_text(own_message(messages, before, role), block);
    else if (user && chat_is_type(block, "tool_result"))
        add_result(messages, block, where, f);
    else if (!user && chat_is_type(block, "tool_use"))
        add_use(own_message(messages, before, role), block, where, f);
    else if (!user && chat_is_type(block, "thinking"))
        add_thought(own_message(messages, before, role), block);
    else if (type != NULL && !(!user && chat_is_type(block, "redacted_thinking")))
        *f = fault_make(400, where, "%s: blocks of type \"%.60s\" are not implemented here", where, type);
    else if (type == NULL)
        (void)chat_wrong(f, where, block, "a block with a \"type\"");
}

static void add_blocks(json_t *messages, bool user, const json_t *content, size_t number, struct fault *f)
{
    const json_t *block;
    size_t before = json_array_size(messages), i;
    char where[96];
    json_array_foreach(content, i, block)
    {
        (void)snprintf(where, sizeof where, "messages[%zu].content[%zu]", number, i);
        if (f->status == 0)
            add_block(messages, before, user, block, where, f);
    }
}

/* A system turn may be anywhere; the model's template judges that. */
static void add_turn(json_t *messages, const json_t *turn, size_t number, struct fault *f)
{
    const json_t *content = json_object_get(turn, "content");
    char where[96];
    bool user = is_role(turn, "user"), system = is_role(turn, "system");
    (void)snprintf(where, sizeof where, "messages[%zu]", number);
    if (!json_is_object(turn) || (!user && !system && !is_role(turn, "assistant"))) {
        (void)chat_wrong(f, where, turn, "a turn whose \"role\" is \"user\", \"assistant\" or \"system\"");
        return;
    }
    (void)snprintf(where, sizeof where, "messages[%zu].content", number);
    if (system)
        add_system(messages, content, where, f);
    else if (json_is_string(content))
        (void)chat_add(messages, user ? "user" : "assistant", json_incref((json_t *)content));
    else if (json_is_array(content))
        add_blocks(messages, user, content, number, f);
    else
        (void)chat_wrong(f, where, content, "a string or a list of blocks");
}

static void add_turns(json_t *messages, const json_t *turns, struct fault *f)
{
    const json_t *turn;
    size_t i;
    if (!json_is_array(turns))
        (void)chat_wrong(f, "messages", turns, "a list of turns");
    json_array_foreach(turns, i, turn)
    {
        if (f->status == 0)
            add_turn(messages, turn, i, f);
    }
}

/* Clients write the beginning of the answer as a last turn of the assistant. */
static void continue_answer(json_t *chat, const json_t *turns)
{
    if (is_role(json_array_get(turns, json_array_size(turns) - 1), "assistant"))
        (void)json_object_set_new(chat, "continue_final_message", json_true());
}

/* ---------------------------------------------------------------- tools and other fields */

static void add_tools(json_t *chat, const json_t *tools, struct fault *f)
{
    json_t *list = json_array();
    const json_t *tool;
    size_t i;
    char where[40];
    if (!json_is_array(tools))
        (void)chat_wrong(f, "tools", tools, "a list of tools");
    json_array_foreach(tools, i, tool)
    {
        const char *name = json_string_value(json_object_get(tool, "name"));
        (void)snprintf(where, sizeof where, "tools[%zu]", i);
        if (json_object_get(tool, "type") != NULL && !chat_is_type(tool, "custom") && f->status == 0)
            *f = fault_make(400, where, "%s: tools that a server runs are not implemented here", where);
        else if (name == NULL || !json_is_object(json_object_get(tool, "input_schema")))
            (void)chat_wrong(f, where, tool, "a tool with \"name\" and \"input_schema\"");
        else
            (void)json_array_append_new(
                list, chat_tool(name, json_object_get(tool, "description"), json_object_get(tool, "input_schema")));
    }
    (void)json_object_set_new(chat, "tools", list);
}

static void add_choice(json_t *chat, const json_t *choice, struct fault *f)
{
    const char *name = json_string_value(json_object_get(choice, "name"));
    json_t *to = NULL;
    if (chat_is_type(choice, "any"))
        to = json_string("required");
    else if (chat_is_type(choice, "auto") || chat_is_type(choice, "none"))
        to = json_incref(json_object_get(choice, "type"));
    else if (chat_is_type(choice, "tool") && name != NULL)
        to = json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name);
    else
        (void)chat_wrong(f, "tool_choice", choice, "one of the types auto, any, none, or tool with \"name\"");
    if (to != NULL)
        (void)json_object_set_new(chat, "tool_choice", to);
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        (void)json_object_set_new(chat, "parallel_tool_calls", json_false());
}

/* Thinking on or off is a variable of the templates that know it. */
static void add_thinking(json_t *chat, const json_t *thinking, struct fault *f)
{
    bool on = chat_is_type(thinking, "enabled");
    if (on || chat_is_type(thinking, "disabled"))
        chat_set_variable(chat, "enable_thinking", json_boolean(on));
    else if (!chat_is_type(thinking, "adaptive"))
        (void)chat_wrong(f, "thinking", thinking, "one of the types enabled, disabled, adaptive");
}

/* {"format": {"type": "json_schema", "schema"}}: the form of the answer. `effort` is ignored. */
static void add_config(json_t *chat, const json_t *config, struct fault *f)
{
    const json_t *format = json_object_get(config, "format"), *schema = json_object_get(format, "schema");
    if (!json_is_object(config))
        (void)chat_wrong(f, "output_config", config, "an object");
    else if (format != NULL && !json_is_null(format) &&
             (!chat_is_type(format, "json_schema") || !json_is_object(schema)))
        (void)chat_wrong(f, "output_config.format", format, "the type json_schema with \"schema\"");
    else if (json_is_object(schema))
        (void)json_object_set_new(
            chat, "response_format",
            json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "output", "schema", schema));
}

static bool is_given(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);
    return value != NULL && !json_is_null(value);
}

static void check_fields(const json_t *body, bool needs_limit, struct fault *f)
{
    if (needs_limit && !is_given(body, "max_tokens"))
        *f = fault_make(400, "max_tokens", "max_tokens: missing");
    else if (is_given(body, "prompt"))
        *f = fault_make(400, "prompt", "prompt: unknown field");
}

json_t *messages_translate(const json_t *body, bool needs_limit, struct fault *f)
{
    json_t *chat = json_object(), *messages = json_array();
    check_fields(body, needs_limit, f);
    if (f->status == 0)
        (void)chat_copy_fields(chat, body, fields, sizeof fields / sizeof fields[0], f);
    if (f->status == 0 && is_given(body, "system"))
        add_system(messages, json_object_get(body, "system"), "system", f);
    if (f->status == 0)
        add_turns(messages, json_object_get(body, "messages"), f);
    continue_answer(chat, json_object_get(body, "messages"));
    if (f->status == 0 && is_given(body, "tools"))
        add_tools(chat, json_object_get(body, "tools"), f);
    if (f->status == 0 && is_given(body, "tool_choice"))
        add_choice(chat, json_object_get(body, "tool_choice"), f);
    if (f->status == 0 && is_given(body, "thinking"))
        add_thinking(chat, json_object_get(body, "thinking"), f);
    if (f->status == 0 && is_given(body, "output_config"))
        add_config(chat, json_object_get(body, "output_config"), f);
    (void)json_object_set_new(chat, "messages", messages);
    if (f->status == 0)
        return chat;
    json_decref(chat);
    return NULL;
}
