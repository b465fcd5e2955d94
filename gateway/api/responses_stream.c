/* gateway/api/responses_stream.c - a response as events. Each has a sequence number, and the last has all parts in
 * full. */
#include "base/json.h"
#include "gateway/api/responses.h"

#include <string.h>

/* event is stolen. */
static void send_event(struct exchange *x, struct response *r, const char *type, json_t *event)
{
    json_t *all = json_pack("{s:s, s:i}", "type", type, "sequence_number", r->sequence++);
    (void)json_object_update(all, event);
    json_decref(event);
    exchange_event_json(x, type, all);
}

static const char *text_of(const struct response *r)
{
    return bytes_count(&r->text) > 0 ? bytes_start(&r->text) : "";
}

/* An event about the item: its index, and one or two members, which are stolen. content: the event is about its only
 * part. */
static void send_part(struct exchange *x, struct response *r, const char *type, bool content, const char *name,
                      json_t *value, json_t *logprobs)
{
    json_t *event = json_pack("{s:s, s:I}", "item_id", r->item, "output_index", (json_int_t)json_array_size(r->output));
    if (content)
        (void)json_object_set_new(event, "content_index", json_integer(0));
    (void)json_object_set_new(event, name, value);
    if (logprobs != NULL)
        (void)json_object_set_new(event, "logprobs", logprobs);
    send_event(x, r, type, event);
}

static void send_item(struct exchange *x, struct response *r, const char *type, json_t *item)
{
    send_event(x, r, type,
               json_pack("{s:I, s:o}", "output_index", (json_int_t)json_array_size(r->output), "item", item));
}

static void begin_response(struct exchange *x, struct response *r)
{
    r->has_begun = true;
    send_event(x, r, "response.created", json_pack("{s:o}", "response", response_object(x, r, "in_progress", NULL)));
    send_event(x, r, "response.in_progress",
               json_pack("{s:o}", "response", response_object(x, r, "in_progress", NULL)));
}

/* ---------------------------------------------------------------- items, one after the other */

/* The current item. */
static json_t *item_of(const struct response *r, const char *status, bool whole)
{
    const char *text = text_of(r);
    size_t n = bytes_count(&r->text);
    if (r->kind == RESPONSE_THOUGHT)
        return response_thought(r, status, whole ? text : NULL, n);
    if (r->kind == RESPONSE_CALL)
        return response_call(r, status, r->call, text, n);
    return response_item(r, status, whole ? response_part(text, n, r->logprobs) : NULL);
}

/* The whole text of the item, then the item. */
static void close_item(struct exchange *x, struct response *r, const char *status)
{
    if (r->kind == RESPONSE_NOTHING)
        return;
    json_t *text = json_stringn(text_of(r), bytes_count(&r->text));
    if (r->kind == RESPONSE_MESSAGE) {
        send_part(x, r, "response.output_text.done", true, "text", text, json_incref(r->logprobs));
        json_t *part = response_part(text_of(r), bytes_count(&r->text), r->logprobs);
        send_part(x, r, "response.content_part.done", true, "part", part, NULL);
    } else if (r->kind == RESPONSE_THOUGHT) {
        send_part(x, r, "response.reasoning_text.done", true, "text", text, NULL);
    } else {
        json_t *name = json_object_get(json_object_get(r->call, "function"), "name");
        send_event(x, r, "response.function_call_arguments.done",
                   json_pack("{s:s, s:I, s:O?, s:o}", "item_id", r->item, "output_index",
                             (json_int_t)json_array_size(r->output), "name", name, "arguments", text));
    }
    json_t *item = item_of(r, status, true);
    send_item(x, r, "response.output_item.done", json_incref(item));
    (void)json_array_append_new(r->output, item);
    r->kind = RESPONSE_NOTHING;
}

static void open_item(struct exchange *x, struct response *r, enum response_kind kind)
{
    static const char *const prefixes[] = {"", "msg", "rs", "fc"};
    close_item(x, r, "completed");
    response_name_item(r, prefixes[kind]);
    r->kind = kind;
    bytes_free(&r->text);
    (void)json_array_clear(r->logprobs);
    send_item(x, r, "response.output_item.added", item_of(r, "in_progress", false));
    if (kind == RESPONSE_MESSAGE)
        send_part(x, r, "response.content_part.added", true, "part", response_part("", 0, r->logprobs), NULL);
}

static void send_text(struct exchange *x, struct response *r, json_t *text, json_t *logprobs)
{
    if (!json_is_string(text) || (json_string_length(text) == 0 && json_array_size(logprobs) == 0))
        return;
    if (r->kind != RESPONSE_MESSAGE)
        open_item(x, r, RESPONSE_MESSAGE);
    bytes_append(&r->text, json_string_value(text), json_string_length(text));
    (void)json_array_extend(r->logprobs, logprobs);
    send_part(x, r, "response.output_text.delta", true, "delta", json_incref(text), json_incref(logprobs));
}

static void send_thought(struct exchange *x, struct response *r, json_t *text)
{
    if (json_string_length(text) == 0)
        return;
    if (r->kind != RESPONSE_THOUGHT)
        open_item(x, r, RESPONSE_THOUGHT);
    bytes_append(&r->text, json_string_value(text), json_string_length(text));
    send_part(x, r, "response.reasoning_text.delta", true, "delta", json_incref(text), NULL);
}

/* The first piece of a call has its name. */
static void send_call(struct exchange *x, struct response *r, json_t *call)
{
    json_t *text = json_object_get(json_object_get(call, "function"), "arguments");
    if (json_object_get(call, "id") != NULL) {
        close_item(x, r, "completed"); /* that of the call before */
        json_decref(r->call);
        r->call = json_incref(call);
        open_item(x, r, RESPONSE_CALL);
    }
    if (r->kind != RESPONSE_CALL || json_string_length(text) == 0)
        return;
    bytes_append(&r->text, json_string_value(text), json_string_length(text));
    send_part(x, r, "response.function_call_arguments.delta", false, "delta", json_incref(text), NULL);
}

static void send_choice(struct exchange *x, struct response *r, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta");
    json_t *logprobs = response_logprobs(r, choice), *call;
    size_t i;
    if (delta == NULL)
        send_text(x, r, json_object_get(choice, "text"), logprobs);
    send_thought(x, r, json_object_get(delta, "reasoning_content"));
    send_text(x, r, json_object_get(delta, "content"), logprobs);
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call)
    {
        send_call(x, r, call);
    }
    json_decref(logprobs);
}

static void finish_response(struct exchange *x, struct response *r, const json_t *reply)
{
    const char *status = response_status(json_array_get(json_object_get(reply, "choices"), 0));
    if (r->n_items == 0)
        open_item(x, r, RESPONSE_MESSAGE);
    close_item(x, r, status);
    json_t *object = response_ended(x, r, reply, json_incref(r->output));
    send_event(x, r, strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete",
               json_pack("{s:o}", "response", object));
    exchange_end_events(x, "");
}

static void fail_response(struct exchange *x, struct response *r, const json_t *reply)
{
    struct fault f = response_fault(reply);
    if (!x->has_begun) {
        exchange_fail_anywhere(x, &f);
        return;
    }
    if (!r->has_begun)
        begin_response(x, r);
    json_t *object = response_object(x, r, "failed", NULL);
    (void)json_object_set_new(object, "error",
                              json_pack("{s:s, s:s}", "code",
                                        f.status == 429  ? "rate_limit_exceeded"
                                        : f.status < 500 ? "invalid_prompt"
                                                         : "server_error",
                                        "message", f.message));
    send_event(x, r, "response.failed", json_pack("{s:o}", "response", object));
    exchange_end_events(x, "");
}

void responses_stream_reply(struct exchange *x, void *context, json_t *reply, bool last)
{
    struct response *r = context;
    if (!exchange_is_good(reply)) {
        fail_response(x, r, reply);
        return;
    }
    if (!r->has_begun)
        begin_response(x, r);
    send_choice(x, r, json_array_get(json_object_get(reply, "choices"), 0));
    if (last)
        finish_response(x, r, reply);
}
