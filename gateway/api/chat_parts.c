/* gateway/api/chat_parts.c - see chat_parts.h. */
#include "gateway/api/chat_parts.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

/* "n": 1 is the default. */
static bool asks_for_more(const char *key, const json_t *value)
{
    static const char *const one[] = {"n", "num_return_sequences", "n_cmpl"};
    static const char *const none[] = {"logprobs",         "top_logprobs",     "n_probs",
                                       "return_logprob",   "top_logprobs_num", "prompt_logprobs",
                                       "return_token_ids", "parameters",       "sampling_params"};
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        if (strcmp(one[i], key) == 0)
            return json_integer_value(value) != 1;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (strcmp(none[i], key) == 0)
            return true;
    return false;
}

int chat_copy_fields(json_t *chat, const json_t *body, const struct chat_field *table, size_t n, struct fault *f)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)body, key, value)
    {
        size_t i = 0;
        while (i < n && strcmp(table[i].name, key) != 0)
            i++;
        const char *to = i < n ? table[i].to : key;
        if (to == NULL || json_is_null(value))
            continue;
        if (i == n && asks_for_more(key, value)) {
            *f = fault_make(400, key, "%s: not implemented here", key);
            return -1;
        }
        if (json_object_get(chat, to) != NULL) {
            *f = fault_make(400, key, "%s: unknown field", key);
            return -1;
        }
        (void)json_object_set(chat, to, value);
    }
    return 0;
}

int chat_wrong(struct fault *f, const char *where, const json_t *found, const char *expected)
{
    const char *what = found != NULL ? json_type_name(found) : "nothing";
    *f = fault_make(400, where, "%s: found %s, expected %s", where, what, expected);
    return -1;
}

bool chat_is_type(const json_t *object, const char *type)
{
    const char *found = json_string_value(json_object_get(object, "type"));
    return found != NULL && strcmp(found, type) == 0;
}

/* Refuses a part that is no text, by its index. */
static void refuse_part(const json_t *part, const char *where, size_t i, struct fault *f)
{
    char name[128];
    const char *type = json_string_value(json_object_get(part, "type"));
    (void)snprintf(name, sizeof name, "%s[%zu]", where, i);
    if (type != NULL)
        *f = fault_make(400, name, "%s: parts of type \"%.60s\" are not implemented here", name, type);
    else
        (void)chat_wrong(f, name, part, "an object with \"type\" and \"text\"");
}

json_t *chat_texts(const json_t *content, const char *where, const char *const *types, struct fault *f)
{
    json_t *texts = json_array();
    const json_t *part;
    size_t i;
    if (json_is_string(content)) {
        (void)json_array_append_new(texts, json_pack("{s:s, s:O}", "type", "text", "text", content));
        return texts;
    }
    if (!json_is_array(content))
        (void)chat_wrong(f, where, content, "a string or a list of parts");
    json_array_foreach(content, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        const char *const *type = types;
        while (*type != NULL && !chat_is_type(part, *type))
            type++;
        if (f->status == 0 && (*type == NULL || !json_is_string(text)))
            refuse_part(part, where, i, f);
        (void)json_array_append_new(texts, json_pack("{s:s, s:O?}", "type", "text", "text", text));
    }
    if (f->status == 0)
        return texts;
    json_decref(texts);
    return NULL;
}

json_t *chat_add(json_t *messages, const char *role, json_t *content)
{
    json_t *message = json_pack("{s:s, s:o?}", "role", role, "content", content);
    (void)json_array_append_new(messages, message);
    return message;
}

void chat_add_call(json_t *message, const char *id, const char *name, json_t *arguments)
{
    if (json_object_get(message, "tool_calls") == NULL)
        (void)json_object_set_new(message, "tool_calls", json_array());
    (void)json_array_append_new(json_object_get(message, "tool_calls"),
                                json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name",
                                          name, "arguments", arguments));
}

json_t *chat_tool(const char *name, json_t *description, json_t *parameters)
{
    return json_pack("{s:s, s:{s:s, s:O*, s:O*}}", "type", "function", "function", "name", name, "description",
                     description, "parameters", parameters);
}

void chat_set_variable(json_t *chat, const char *name, json_t *value)
{
    json_t *own = json_object_get(chat, "chat_template_kwargs");
    json_t *all = json_is_object(own) ? json_copy(own) : json_object();
    if (json_object_get(all, name) == NULL)
        (void)json_object_set(all, name, value);
    json_decref(value);
    if (own == NULL || json_is_object(own))
        (void)json_object_set(chat, "chat_template_kwargs", all);
    json_decref(all);
}
