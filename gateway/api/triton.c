/* gateway/api/triton.c - see triton.h: generate. */
#include "gateway/api/triton.h"
#include "base/json.h"
#include "gateway/api/chat_parts.h"
#include "gateway/api/openai.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int status_of(const struct fault *f)
{
    return f->status == 413 || f->status == 429 ? (f->status == 429 ? 503 : 400) : f->status;
}

static void write_fault(const struct fault *f, struct bytes *to)
{
    bytes_text(to, "{\"error\":");
    bytes_json_string(to, f->message, strlen(f->message));
    bytes_text(to, "}");
}

const struct dialect triton_dialect = {.type = "application/json", .write = write_fault, .status = status_of};

/* The exchange's state. */
struct generation {
    json_t *id; /* the client's; NULL: none */
};

static void drop(void *state)
{
    struct generation *g = state;
    json_decref(g->id);
    free(g);
}

/* ---------------------------------------------------------------- requests */

/* Field names of TensorRT-LLM's and vLLM's backends that differ from the protocol's. */
static const struct chat_field fields[] = {
    {"stop_words", "stop"}, {"exclude_input_in_output", "exclude_input_from_output"},
    {"pad_id", NULL}, /* nothing is padded */
    {"id", NULL},           {"stream", NULL},
    {"model", NULL},        {"parameters", NULL}};

#define N_FIELDS (sizeof fields / sizeof fields[0])

static void drop_empty(json_t *message, const char *name)
{
    const json_t *value = json_object_get(message, name);
    if ((json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_string(value) && json_string_length(value) == 0))
        (void)json_object_del(message, name);
}

/* Parameters are beside the text or in `parameters`; the path, not `stream`, decides on streaming. */
static json_t *translate(const json_t *body, bool stream, struct fault *f)
{
    json_t *message = json_object();
    const json_t *places[] = {body, json_object_get(body, "parameters")};
    for (int i = 0; i < 2 && f->status == 0; i++) {
        const json_t *asked = json_object_get(places[i], "stream");
        if (asked != NULL && !json_is_null(asked) && json_is_true(asked) != stream)
            *f = fault_make(400, "stream", "stream: found %s, expected %s on this path", json_type_name(asked),
                            stream ? "true" : "false");
        else if (places[i] != NULL && !json_is_null(places[i]) && !json_is_object(places[i]))
            (void)chat_wrong(f, "parameters", places[i], "an object");
        else
            (void)chat_copy_fields(message, places[i], fields, N_FIELDS, f);
    }
    if (f->status == 0 && !json_is_string(json_object_get(message, "text_input")))
        (void)chat_wrong(f, "text_input", json_object_get(message, "text_input"), "a text");
    drop_empty(message, "stop");
    drop_empty(message, "bad_words");
    if (stream)
        (void)json_object_set_new(message, "stream", json_true());
    if (f->status == 0)
        return message;
    json_decref(message);
    return NULL;
}

/* ---------------------------------------------------------------- answers */

static json_t *output_of(const struct exchange *x, const struct generation *g, json_t *text)
{
    return json_pack("{s:O*, s:s, s:s, s:O?}", "id", g->id, "model_name", x->tail[0], "model_version", "1",
                     "text_output", text);
}

static void answer_whole(struct exchange *x, void *context, json_t *reply, bool last)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    (void)last; /* there is one reply */
    if (exchange_is_good(reply))
        exchange_answer_json(x, 200, output_of(x, context, json_object_get(choice, "text")));
    else
        exchange_fail_reply(x, reply);
}

static void stream(struct exchange *x, void *context, json_t *reply, bool last)
{
    json_t *text = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "text");
    if (!exchange_is_good(reply)) {
        exchange_fail_reply(x, reply);
        return;
    }
    if (json_string_length(text) > 0)
        exchange_event_json(x, NULL, output_of(x, context, text));
    if (last)
        exchange_end_events(x, "");
}

static void generate(struct exchange *x, bool streams)
{
    struct fault f = {0};
    exchange_is_text(x, x->tail[0]);
    struct generation *g = exchange_state(x, sizeof *g, drop);
    json_t *body = g != NULL ? exchange_json(x) : NULL;
    if (body == NULL)
        return;
    json_t *message = translate(body, streams, &f), *id = json_object_get(body, "id");
    g->id = id != NULL && !json_is_null(id) ? json_incref(id) : NULL;
    json_decref(body);
    if (message == NULL) {
        exchange_fail(x, &f);
        return;
    }
    if (streams)
        exchange_will_stream(x);
    const struct exchange_question q = {
        .model = x->tail[0], .message = message, .reply = streams ? stream : answer_whole, .context = g};
    exchange_ask(x, &q);
}

void triton_generate(struct exchange *x)
{
    generate(x, false);
}

void triton_generate_stream(struct exchange *x)
{
    generate(x, true);
}
