/* protocol/protocol_prompt.c - `prompt` and `messages` of a message, checked; no text is tokenized here. */
#include "base/text_buffer.h"
#include "protocol/protocol_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VARIABLES 64 /* in chat_template_kwargs */

static const char expected[] = "a string, a list of strings, a list of token ids or a list of those";

static int out_of_memory(struct protocol_error *error)
{
    return protocol_fail(error, PROTOCOL_INTERNAL, "", "out of host memory");
}

static int read_ids(struct protocol_prompt *p, const json_t *list, int vocab, const char *name,
                    struct protocol_error *error)
{
    struct token_list ids = {0};
    if (json_array_size(list) == 0)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "found no token ids, expected at least one");
    int rc = fields_read_ids(list, vocab, name, &ids, error);
    p->id = ids.id;
    p->n_ids = ids.n;
    return rc;
}

/* Item i of a list of prompts whose first item has this type. */
static int read_item(struct protocol_prompt *p, const struct fields *f, long i, const json_t *item, json_type type,
                     int vocab, struct protocol_error *error)
{
    char name[64];
    if (json_typeof(item) != type)
        return fields_fail(f, FIELD_PROMPT, i, error, "found %s after %s, expected items of one type",
                           json_type_name(item), type == JSON_STRING ? "a string" : "an array");
    if (type == JSON_ARRAY)
        return read_ids(p, item, vocab, fields_name(f, FIELD_PROMPT, i, name), error);
    p->text = json_string_value(item);
    p->bytes = json_string_length(item);
    return 0;
}

static int read_list(struct protocol_generate *g, const struct fields *f, int vocab, struct protocol_error *error)
{
    const json_t *value = f->value[FIELD_PROMPT], *first = json_array_get(value, 0);
    size_t n = json_array_size(value);
    if (json_is_integer(first) || json_is_real(first)) { /* one prompt of ids */
        char name[64];
        g->n_prompts = 1;
        return read_ids(&g->prompt[0], value, vocab, fields_name(f, FIELD_PROMPT, -1, name), error);
    }
    if (!json_is_string(first) && !json_is_array(first))
        return fields_fail(f, FIELD_PROMPT, n == 0 ? -1 : 0, error, "found %s, expected %s",
                           n == 0 ? "an empty list" : json_type_name(first), expected);
    g->n_prompts = (int)n;
    for (size_t i = 0; i < n; i++)
        if (read_item(&g->prompt[i], f, (long)i, json_array_get(value, i), json_typeof(first), vocab, error) != 0)
            return -1;
    return 0;
}

static int check_sequences(const struct protocol_generate *g, const struct fields *f, size_t n_prompts,
                           struct protocol_error *error)
{
    const struct search *s = &g->search;
    int each = s->num_beams > 1 ? s->num_beams : s->best_of > s->n ? s->best_of : s->n;
    if (each > 0 && n_prompts > (size_t)(PROTOCOL_MAX_SEQUENCES / each))
        return fields_fail(f, FIELD_PROMPT, -1, error, "found %zu prompts of %d sequences each, at most %d together",
                           n_prompts, each, PROTOCOL_MAX_SEQUENCES);
    return 0;
}

static int read_prompts(struct protocol_message *m, const struct fields *f, int vocab, bool many,
                        struct protocol_error *error)
{
    struct protocol_generate *g = &m->generate;
    const json_t *value = f->value[FIELD_PROMPT];
    if (!json_is_string(value) && !(many && json_is_array(value)))
        return fields_fail(f, FIELD_PROMPT, -1, error, "found %s, expected %s", json_type_name(value),
                           many ? expected : "a string");
    bool lists = !json_is_string(value) && !json_is_number(json_array_get(value, 0));
    size_t n = lists ? json_array_size(value) : 1;
    if (check_sequences(g, f, n, error) != 0)
        return -1;
    g->prompt = calloc(n + 1, sizeof *g->prompt);
    if (g->prompt == NULL)
        return out_of_memory(error);
    g->n_prompts = 1;
    if (json_is_string(value)) {
        g->prompt[0].text = json_string_value(value);
        g->prompt[0].bytes = json_string_length(value);
        return 0;
    }
    int rc = read_list(g, f, vocab, error);
    if (rc == 0 && g->prompt[0].id != NULL) /* copied: the JSON of ids takes ten times their memory */
        (void)json_object_del(m->root, f->name[FIELD_PROMPT]);
    return rc;
}

static int turn_fail(struct protocol_error *error, size_t turn, const char *member, const json_t *found,
                     const char *wanted)
{
    char name[64];
    (void)snprintf(name, sizeof name, "messages[%zu]%s%s", turn, member[0] != '\0' ? "." : "", member);
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "found %s, expected %s", json_type_name(found), wanted);
}

/* Refuses part i of the content of this name, or a member of it. found NULL: the member is unknown. */
static int part_fail(struct protocol_error *error, const char *name, size_t i, const char *member, const char *found)
{
    char field[96];
    (void)snprintf(field, sizeof field, "%s[%zu]%s%.40s", name, i, member[0] != '\0' ? "." : "", member);
    if (found == NULL)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, field, "unknown field");
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, field, "found %s, expected %s", found,
                         member[0] != '\0' ? "a string" : "{\"type\": \"text\", \"text\": a string}");
}

static int check_part(const json_t *part, const char *name, size_t i, struct protocol_error *error)
{
    const json_t *text = json_object_get(part, "text"), *type = json_object_get(part, "type");
    const char *key;
    json_t *value;
    char field[96];
    (void)snprintf(field, sizeof field, "%s[%zu].type", name, i);
    if (!json_is_object(part))
        return part_fail(error, name, i, "", json_type_name(part));
    if (!json_is_string(type))
        return part_fail(error, name, i, "type", json_type_name(type));
    if (strcmp(json_string_value(type), "text") != 0)
        return protocol_fail(
            error, PROTOCOL_BAD_REQUEST, field,
            "found a part of type \"%.40s\", expected \"text\": pictures, sounds and files are refused",
            json_string_value(type));
    if (!json_is_string(text))
        return part_fail(error, name, i, "text", json_type_name(text));
    json_object_foreach((json_t *)part, key, value)
    {
        if (strcmp(key, "text") != 0 && strcmp(key, "type") != 0 && !json_is_null(value))
            return part_fail(error, name, i, key, NULL);
    }
    return 0;
}

/* Joins text parts with line feeds, as vLLM does; the text replaces the list in the message. */
static int join_parts(json_t *object, const char *name, const json_t *list, struct protocol_error *error)
{
    struct text_buffer all = {0};
    struct err e = {0};
    size_t i;
    const json_t *part;
    int rc = 0;
    if (json_array_size(list) == 0)
        rc = protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "found an empty list, expected text parts");
    json_array_foreach(list, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        rc = rc == 0 ? check_part(part, name, i, error) : rc;
        if (rc == 0 && ((i > 0 && text_append(&all, "\n", 1, &e) != 0) ||
                        text_append(&all, json_string_value(text), json_string_length(text), &e) != 0))
            rc = out_of_memory(error);
    }
    if (rc == 0 &&
        json_object_set_new(object, "content", json_stringn(all.data != NULL ? all.data : "", all.bytes)) != 0)
        rc = out_of_memory(error);
    text_free(&all);
    return rc;
}

static bool is_blank(const json_t *text)
{
    return strspn(json_string_value(text), " \t\r\n") == json_string_length(text);
}

/* The arguments of a call, which clients send as JSON in a string, become the object that templates expect. A model may
 * have written something else, which must not end its conversation: this becomes {"arguments": the text}. */
static int read_arguments(json_t *function, struct protocol_error *error)
{
    struct protocol_error why = {0};
    json_t *text = json_object_get(function, "arguments");
    if (!json_is_string(text))
        return 0;
    json_t *object = is_blank(text)
                         ? json_object()
                         : protocol_json(json_string_value(text), json_string_length(text), "arguments", &why);
    if (object == NULL)
        object = json_pack("{s:O}", "arguments", text);
    return json_object_set_new(function, "arguments", object) == 0 ? 0 : out_of_memory(error);
}

/* These texts are parsed one by one, so their sizes are added up: several must not exceed the limits of a message. */
static int check_arguments(const json_t *messages, struct protocol_error *error)
{
    struct json_limits all = {0}, one;
    const json_t *turn, *call;
    size_t i, k;
    json_array_foreach(messages, i, turn) json_array_foreach(json_object_get(turn, "tool_calls"), k, call)
    {
        const json_t *text = json_object_get(json_object_get(call, "function"), "arguments");
        json_measure(json_is_string(text) ? json_string_value(text) : "", json_string_length(text), &one);
        all.values += one.values;
        all.lists += one.lists;
        all.members += one.members;
    }
    return protocol_check_limits(&all, "messages.tool_calls", error);
}

static int read_calls(json_t *object, size_t turn, struct protocol_error *error)
{
    char name[64];
    size_t i;
    json_t *call;
    json_t *calls = json_object_get(object, "tool_calls");
    if (!json_is_array(calls))
        return turn_fail(error, turn, "tool_calls", calls, "a list of {\"function\": {\"name\", \"arguments\"}}");
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");
        (void)snprintf(name, sizeof name, "messages[%zu].tool_calls[%zu]", turn, i);
        if (!json_is_object(function) || !json_is_string(json_object_get(function, "name")))
            return protocol_fail(error, PROTOCOL_BAD_REQUEST, name,
                                 "found %s, expected {\"function\": {\"name\", \"arguments\"}}", json_type_name(call));
        if (read_arguments(function, error) != 0)
            return -1;
    }
    return 0;
}

/* A member of a turn other than role and content, passed on to the template unchanged. */
static int read_member(json_t *object, size_t turn, const char *key, const json_t *value, struct protocol_error *error)
{
    static const char *const texts[] = {"name", "tool_call_id", "reasoning_content"};
    char name[96];
    if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 || json_is_null(value))
        return 0;
    if (strcmp(key, "tool_calls") == 0)
        return read_calls(object, turn, error);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(key, texts[i]) == 0)
            return json_is_string(value) ? 0 : turn_fail(error, turn, key, value, "a string");
    (void)snprintf(name, sizeof name, "messages[%zu].%.40s", turn, key);
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "not implemented");
}

/* The parts of message i are kept beside their joined text, for templates that iterate over them. A single part is just
 * the text. */
static int keep_parts(struct protocol_generate *g, size_t i, json_t *list, struct protocol_error *error)
{
    if (json_array_size(list) < 2)
        return 0;
    if (g->parts == NULL)
        g->chat.parts = g->parts = json_array();
    for (size_t n = json_array_size(g->parts); n < (size_t)g->n_turns; n++)
        (void)json_array_append_new(g->parts, json_null());
    return json_array_set(g->parts, i, list) == 0 ? 0 : out_of_memory(error);
}

static int read_turn(struct protocol_generate *g, size_t i, json_t *object, struct protocol_error *error)
{
    const char *key;
    json_t *value;
    const json_t *role = json_object_get(object, "role");
    json_t *content = json_object_get(object, "content");
    bool calls = json_array_size(json_object_get(object, "tool_calls")) > 0;
    if (!json_is_object(object))
        return turn_fail(error, i, "", object, "an object with \"role\" and \"content\"");
    json_object_foreach(object, key, value) if (read_member(object, i, key, value, error) != 0) return -1;
    if (!json_is_string(role))
        return turn_fail(error, i, "role", role, "a string");
    if (json_is_array(content)) {
        char name[64];
        (void)snprintf(name, sizeof name, "messages[%zu].content", i);
        if (keep_parts(g, i, content, error) != 0 || join_parts(object, name, content, error) != 0)
            return -1;
        content = json_object_get(object, "content");
    }
    if (!json_is_string(content) && !(calls && (content == NULL || json_is_null(content))))
        return turn_fail(error, i, "content", content, "a string or a list of text parts");
    bool said = json_is_string(content);
    g->turn[i] = (struct protocol_turn){json_string_value(role), said ? json_string_value(content) : "",
                                        said ? json_string_length(content) : 0};
    return 0;
}

/* A list of objects, or NULL if it was not given or is empty. */
static const json_t *read_objects(const struct fields *f, enum field_id id, struct protocol_error *error)
{
    const json_t *list = f->value[id], *item;
    size_t i;
    if (list != NULL && !json_is_array(list))
        (void)fields_fail(f, id, -1, error, "found %s, expected a list of objects", json_type_name(list));
    json_array_foreach(list, i, item) if (!json_is_object(item))(void)
        fields_fail(f, id, (long)i, error, "found %s, expected an object", json_type_name(item));
    return json_array_size(list) > 0 ? list : NULL;
}

/* Variables of the template by name, except those that have fields of their own. */
static const json_t *read_variables(const struct fields *f, struct protocol_error *error)
{
    static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
    const enum field_id id = FIELD_CHAT_TEMPLATE_KWARGS;
    const json_t *object = f->value[id];
    if (object == NULL)
        return NULL;
    if (!json_is_object(object) || json_object_size(object) > MAX_VARIABLES)
        (void)fields_fail(f, id, -1, error, "found %s of %zu members, expected an object of at most %d",
                          json_type_name(object), json_object_size(object), MAX_VARIABLES);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (json_object_get(object, taken[i]) != NULL)
            (void)fields_fail(f, id, -1, error, "found \"%s\" in it, which is a field of the message", taken[i]);
    return object;
}

/* The last message's text may be continued in place of the opening of another turn. */
static void read_end(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    const enum field_id id = FIELD_CONTINUE_FINAL_MESSAGE;
    bool goes_on = fields_bool(f, id, false, error);
    g->chat.add_generation_prompt = fields_bool(f, FIELD_ADD_GENERATION_PROMPT, !goes_on, error);
    g->chat.continue_last = goes_on;
    if (goes_on && g->chat.add_generation_prompt)
        (void)fields_fail(f, id, -1, error, "contradicts \"add_generation_prompt\": true");
}

static int read_turns(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    const json_t *list = f->value[FIELD_MESSAGES];
    size_t n = json_array_size(list);
    if (n == 0)
        return fields_fail(f, FIELD_MESSAGES, -1, error, "found %s, expected a list of {\"role\", \"content\"}",
                           json_is_array(list) ? "an empty list" : json_type_name(list));
    g->turn = calloc(n, sizeof *g->turn);
    if (g->turn == NULL)
        return out_of_memory(error);
    g->n_prompts = 1;
    g->n_turns = (int)n;
    g->chat.messages = list;
    g->chat.tools = read_objects(f, FIELD_TOOLS, error);
    protocol_read_tools(g, f, error);
    g->chat.documents = read_objects(f, FIELD_DOCUMENTS, error);
    g->chat.variables = read_variables(f, error);
    read_end(g, f, error);
    if (check_arguments(list, error) != 0)
        return -1;
    for (size_t i = 0; i < n && error->code == 0; i++)
        (void)read_turn(g, i, json_array_get(list, i), error);
    const json_t *last = json_object_get(json_array_get(list, n - 1), "content");
    if (error->code == 0 && g->chat.continue_last && !json_is_string(last))
        return turn_fail(error, n - 1, "content", last, "a text to continue");
    return error->code == 0 ? 0 : -1;
}

/* Fields that only chats have. */
static int check_chat_fields(const struct fields *f, struct protocol_error *error)
{
    static const enum field_id only[] = {
        FIELD_ADD_GENERATION_PROMPT, FIELD_CONTINUE_FINAL_MESSAGE, FIELD_TOOLS,     FIELD_TOOL_CHOICE,
        FIELD_PARALLEL_TOOL_CALLS,   FIELD_INCLUDE_REASONING,      FIELD_DOCUMENTS, FIELD_CHAT_TEMPLATE_KWARGS};
    for (size_t i = 0; i < sizeof only / sizeof only[0]; i++)
        if (f->value[only[i]] != NULL)
            return fields_fail(f, only[i], -1, error, "only chats (\"messages\") have it");
    return 0;
}

/* {"type": "content", "content": ..}, as OpenAI has it. */
static int read_prediction(struct protocol_message *m, const struct fields *f, struct protocol_error *error)
{
    json_t *object = f->value[FIELD_PREDICTION] != NULL ? json_object_get(m->root, f->name[FIELD_PREDICTION]) : NULL;
    const json_t *type = json_object_get(object, "type"), *content = json_object_get(object, "content");
    if (object == NULL)
        return 0;
    if (!json_is_string(type) || strcmp(json_string_value(type), "content") != 0 || json_object_size(object) != 2 ||
        (!json_is_string(content) && !json_is_array(content)))
        return fields_fail(f, FIELD_PREDICTION, -1, error,
                           "expected {\"type\": \"content\", \"content\": a string or a list of text parts}");
    if (json_is_array(content) && join_parts(object, "prediction.content", content, error) != 0)
        return -1;
    content = json_object_get(object, "content");
    m->generate.prediction = json_string_value(content);
    m->generate.prediction_bytes = json_string_length(content);
    return 0;
}

int protocol_read_prompt(struct protocol_message *m, const struct fields *f, int vocab, bool many,
                         struct protocol_error *error)
{
    struct protocol_generate *g = &m->generate;
    bool chat = f->value[FIELD_MESSAGES] != NULL;
    if (chat && f->value[FIELD_PROMPT] != NULL)
        return fields_fail(f, FIELD_MESSAGES, -1, error, "given beside \"%s\", expected one of them",
                           f->name[FIELD_PROMPT]);
    if (!chat && f->value[FIELD_PROMPT] == NULL)
        return fields_fail(f, FIELD_PROMPT, -1, error, "missing: expected \"prompt\" or \"messages\"");
    if (!chat && check_chat_fields(f, error) != 0)
        return -1;
    if (chat && f->value[FIELD_ADD_SPECIAL_TOKENS] != NULL)
        return fields_fail(f, FIELD_ADD_SPECIAL_TOKENS, -1, error, "chats have the special tokens of their template");
    g->add_special_tokens = fields_bool(f, FIELD_ADD_SPECIAL_TOKENS, !chat, error);
    g->parse_special = fields_bool(f, FIELD_PARSE_SPECIAL, !chat, error);
    if (error->code != 0 || read_prediction(m, f, error) != 0)
        return -1;
    return chat ? read_turns(g, f, error) : read_prompts(m, f, vocab, many, error);
}
