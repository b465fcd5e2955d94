/* gateway/api/responses_stream.c - a response as events. Each has its number, and at the end come all parts whole. */
#include "base/json.h"
#include "gateway/api/responses.h"

#include <string.h>

/* event is stolen. */
static void send(struct exchange *x, struct response *r, const char *type, json_t *event)
{
    json_t *all = json_pack("{s:s, s:i}", "type", type, "sequence_number", r->sequence++);
    (void)json_object_update(all, event);
    json_decref(event);
    exchange_event_json(x, type, all);
}

static json_t *place(const struct response *r)
{
    return json_pack("{s:s, s:i, s:i}", "item_id", r->item, "output_index", 0, "content_index", 0);
}

/* An event about the part: its place, and a member or two, which are stolen. */
static void send_part(struct exchange *x, struct response *r, const char *type, const char *name, json_t *value,
                      json_t *logprobs)
{
    json_t *event = place(r);
    (void)json_object_set_new(event, name, value);
    if (logprobs != NULL)
        (void)json_object_set_new(event, "logprobs", logprobs);
    send(x, r, type, event);
}

static void send_item(struct exchange *x, struct response *r, const char *type, json_t *item)
{
    send(x, r, type, json_pack("{s:i, s:o}", "output_index", 0, "item", item));
}

static void begin(struct exchange *x, struct response *r)
{
    r->has_begun = true;
    send(x, r, "response.created", json_pack("{s:o}", "response", response_object(x, r, "in_progress", NULL)));
    send(x, r, "response.in_progress", json_pack("{s:o}", "response", response_object(x, r, "in_progress", NULL)));
}

static void begin_item(struct exchange *x, struct response *r)
{
    begin(x, r);
    send_item(x, r, "response.output_item.added", response_item(r, "in_progress", NULL));
    send_part(x, r, "response.content_part.added", "part", response_part("", 0, r->logprobs), NULL);
}

static void send_text(struct exchange *x, struct response *r, const json_t *choice)
{
    json_t *text = json_object_get(choice, "text"), *logprobs = response_logprobs(r, choice);
    if (json_is_string(text) && (json_string_length(text) > 0 || json_array_size(logprobs) > 0)) {
        bytes_append(&r->text, json_string_value(text), json_string_length(text));
        (void)json_array_extend(r->logprobs, logprobs);
        send_part(x, r, "response.output_text.delta", "delta", json_incref(text), json_incref(logprobs));
    }
    json_decref(logprobs);
}

static json_t *whole_part(const struct response *r)
{
    return response_part(bytes_start(&r->text), bytes_count(&r->text), r->logprobs);
}

static void finish(struct exchange *x, struct response *r, const json_t *reply)
{
    const char *status = response_status(json_array_get(json_object_get(reply, "choices"), 0));
    json_t *text = json_stringn(bytes_count(&r->text) > 0 ? bytes_start(&r->text) : "", bytes_count(&r->text));
    send_part(x, r, "response.output_text.done", "text", text, json_incref(r->logprobs));
    send_part(x, r, "response.content_part.done", "part", whole_part(r), NULL);
    send_item(x, r, "response.output_item.done", response_item(r, status, whole_part(r)));
    json_t *object = response_ended(x, r, reply, response_item(r, status, whole_part(r)));
    send(x, r, strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete",
         json_pack("{s:o}", "response", object));
    exchange_end_events(x, "");
}

static void fail(struct exchange *x, struct response *r, const json_t *reply)
{
    struct fault f = response_fault(reply);
    if (!x->has_begun) {
        exchange_fail_anywhere(x, &f);
        return;
    }
    if (!r->has_begun)
        begin(x, r);
    json_t *object = response_object(x, r, "failed", NULL);
    (void)json_object_set_new(object, "error",
                              json_pack("{s:s, s:s}", "code",
                                        f.status == 429  ? "rate_limit_exceeded"
                                        : f.status < 500 ? "invalid_prompt"
                                                         : "server_error",
                                        "message", f.message));
    send(x, r, "response.failed", json_pack("{s:o}", "response", object));
    exchange_end_events(x, "");
}

void responses_stream_reply(struct exchange *x, void *context, json_t *reply, bool last)
{
    struct response *r = context;
    if (!exchange_is_good(reply)) {
        fail(x, r, reply);
        return;
    }
    if (!r->has_begun)
        begin_item(x, r);
    send_text(x, r, json_array_get(json_object_get(reply, "choices"), 0));
    if (last)
        finish(x, r, reply);
}
