/* gateway/api/tokens.c - see tokens.h. */
#include "gateway/api/tokens.h"
#include "base/json.h"

#include <string.h>

static void tokenized(struct exchange *x, void *context, json_t *reply, bool last)
{
    (void)context;
    (void)last;
    if (!exchange_is_good(reply)) {
        exchange_fail_reply(x, reply);
        return;
    }
    json_t *strings = json_object_get(reply, "token_strs");
    exchange_answer_json(x, 200,
                         json_pack("{s:O?, s:O?, s:O?, s:O?}", "count", json_object_get(reply, "count"),
                                   "max_model_len", json_object_get(reply, "max_model_len"), "tokens",
                                   json_object_get(reply, "token_ids"), "token_strs", strings));
}

static void detokenized(struct exchange *x, void *context, json_t *reply, bool last)
{
    (void)context;
    (void)last;
    if (!exchange_is_good(reply))
        exchange_fail_reply(x, reply);
    else
        exchange_answer_json(x, 200, json_pack("{s:O?}", "prompt", json_object_get(reply, "text")));
}

/* The body is the backend's message but for the model, which the gateway reads. */
static void ask_backend(struct exchange *x, const char *op, void (*reply)(struct exchange *, void *, json_t *, bool))
{
    struct fault f = {0};
    char name[EXCHANGE_TAIL_BYTES] = "";
    json_t *body = exchange_json(x);
    if (body == NULL)
        return;
    const json_t *model = json_object_get(body, "model");
    if (json_object_get(body, "op") != NULL || json_object_get(body, "request_id") != NULL)
        f = fault_make(400, "op", "op, request_id: unknown fields");
    else if (model != NULL && !json_is_null(model) && !json_is_string(model))
        f = fault_make(400, "model", "model: found %s, expected a string", json_type_name(model));
    else if (json_is_string(model) && json_string_length(model) >= sizeof name)
        f = fault_make(404, "model", "no model has a name of %zu bytes", json_string_length(model));
    else if (json_is_string(model))
        memcpy(name, json_string_value(model), json_string_length(model) + 1);
    if (f.status != 0) {
        json_decref(body);
        exchange_fail(x, &f);
        return;
    }
    (void)json_object_del(body, "model");
    (void)json_object_set_new(body, "op", json_string(op));
    const struct exchange_question q = {.model = name, .message = body, .reply = reply};
    exchange_ask(x, &q);
}

void tokens_tokenize(struct exchange *x)
{
    ask_backend(x, "tokenize", tokenized);
}

void tokens_detokenize(struct exchange *x)
{
    ask_backend(x, "detokenize", detokenized);
}
