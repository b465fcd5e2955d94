/* gateway/api/responses_items.c - the items of a response's output: thoughts, a message, calls. */
#include "base/json.h"
#include "gateway/api/responses.h"

#include <stdio.h>

void response_name_item(struct response *r, const char *prefix)
{
    int n = r->n_items++;
    if (n == 0)
        (void)snprintf(r->item, sizeof r->item, "%s_%s", prefix, r->name);
    else
        (void)snprintf(r->item, sizeof r->item, "%s_%s_%d", prefix, r->name, n);
}

json_t *response_part(const char *text, size_t bytes, json_t *logprobs)
{
    return json_pack("{s:s, s:s%, s:[], s:O}", "type", "output_text", "text", text != NULL ? text : "", bytes,
                     "annotations", "logprobs", logprobs);
}

json_t *response_item(const struct response *r, const char *status, json_t *part)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", r->item, "status", status, "role",
                     "assistant", "content", part != NULL ? json_pack("[o]", part) : json_array());
}

json_t *response_thought(const struct response *r, const char *status, const char *text, size_t bytes)
{
    json_t *content = json_array();
    if (text != NULL)
        (void)json_array_append_new(content, json_pack("{s:s, s:s%}", "type", "reasoning_text", "text", text, bytes));
    return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", r->item, "status", status, "summary",
                     "content", content);
}

json_t *response_call(const struct response *r, const char *status, const json_t *call, const char *arguments,
                      size_t bytes)
{
    return json_pack("{s:s, s:s, s:s, s:O?, s:O?, s:s%}", "type", "function_call", "id", r->item, "status", status,
                     "call_id", json_object_get(call, "id"), "name",
                     json_object_get(json_object_get(call, "function"), "name"), "arguments",
                     arguments != NULL ? arguments : "", bytes);
}

/* If the answer was cut, its last item is incomplete. */
static const char *status_of(const json_t *choice, bool last)
{
    return last ? response_status(choice) : "completed";
}

json_t *response_output(struct response *r, const json_t *choice, json_t *logprobs)
{
    const json_t *said = json_object_get(choice, "message"), *calls = json_object_get(said, "tool_calls"), *call;
    const json_t *thought = json_object_get(said, "reasoning_content");
    const json_t *text = said != NULL ? json_object_get(said, "content") : json_object_get(choice, "text");
    size_t i, n = json_array_size(calls);
    json_t *output = json_array();
    if (json_is_string(thought)) {
        response_name_item(r, "rs");
        (void)json_array_append_new(
            output, response_thought(r, "completed", json_string_value(thought), json_string_length(thought)));
    }
    if (json_is_string(text)) {
        response_name_item(r, "msg");
        json_t *part = response_part(json_string_value(text), json_string_length(text), logprobs);
        (void)json_array_append_new(output, response_item(r, status_of(choice, n == 0), part));
    }
    json_array_foreach(calls, i, call)
    {
        const json_t *arguments = json_object_get(json_object_get(call, "function"), "arguments");
        response_name_item(r, "fc");
        (void)json_array_append_new(output, response_call(r, status_of(choice, i + 1 == n), call,
                                                          json_string_value(arguments), json_string_length(arguments)));
    }
    return output;
}
