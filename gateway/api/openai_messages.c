/* gateway/api/openai_messages.c - the messages of a chat for the backend. Clients append earlier answers unchanged,
 * members without meaning included; some have other servers' names. */
#include "base/json.h"
#include "gateway/api/openai_parts.h"

#include <string.h>

/* A member without information for the backend; `refusal` is for the client only. */
static bool is_idle(const char *key, const json_t *value)
{
    if (strcmp(key, "cache_control") == 0)
        return true;
    bool empty = (json_is_array(value) && json_array_size(value) == 0) || json_is_null(value);
    return empty && (strcmp(key, "annotations") == 0 || strcmp(key, "refusal") == 0 || strcmp(key, "audio") == 0 ||
                     strcmp(key, "function_call") == 0 || strcmp(key, "tool_calls") == 0 ||
                     strcmp(key, "reasoning") == 0 || strcmp(key, "reasoning_content") == 0);
}

/* A content without what only marks caches: prefixes are kept here without a request. */
static json_t *content_of(json_t *content)
{
    json_t *list = json_array(), *part;
    size_t i;
    json_array_foreach(content, i, part)
    {
        bool marked = json_object_get(part, "cache_control") != NULL;
        json_t *own = marked ? json_copy(part) : json_incref(part);
        if (marked)
            (void)json_object_del(own, "cache_control");
        (void)json_array_append_new(list, own);
    }
    return list;
}

static json_t *message_of(const json_t *message)
{
    json_t *to = json_object(), *value;
    const char *key, *role = json_string_value(json_object_get(message, "role"));
    json_object_foreach((json_t *)message, key, value)
    {
        bool other_name = strcmp(key, "reasoning") == 0 && json_object_get(message, "reasoning_content") == NULL;
        if (!is_idle(key, value))
            (void)json_object_set(to, other_name ? "reasoning_content" : key, value);
    }
    if (json_is_array(json_object_get(to, "content")))
        (void)json_object_set_new(to, "content", content_of(json_object_get(to, "content")));
    if (role != NULL && strcmp(role, "developer") == 0)
        (void)json_object_set_new(to, "role", json_string("system"));
    return to;
}

json_t *openai_messages(const json_t *messages)
{
    json_t *list = json_array();
    const json_t *message;
    size_t i;
    if (!json_is_array(messages)) {
        json_decref(list);
        return json_incref((json_t *)messages); /* the backend reports what is wrong with it */
    }
    json_array_foreach(messages, i, message)
    {
        (void)json_array_append_new(list,
                                    json_is_object(message) ? message_of(message) : json_incref((json_t *)message));
    }
    return list;
}
