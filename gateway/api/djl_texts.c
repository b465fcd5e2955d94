/* gateway/api/djl_texts.c - {"text": [..], "seq_length": N} -> {"outputs": [..]}: each text is continued until prompt
 * and answer have N tokens together. So the prompts' tokens are counted first, by one question each. */
#include "base/json.h"
#include "gateway/api/chat_parts.h"
#include "gateway/api/djl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXTS 1024
#define TOP_K     50 /* sampling defaults */

struct djl_texts;

struct djl_text {
    struct djl_texts *all;
    size_t i;
};

/* The exchange's state. */
struct djl_texts {
    char model[EXCHANGE_TAIL_BYTES];
    json_t *rest;          /* of the body: the fields of every message */
    json_t *texts;         /* [n] */
    struct djl_text *text; /* [n] */
    json_t *outputs;       /* [n], null before the answer */
    json_int_t seq_length; /* tokens */
    size_t n, n_open;
    bool all_asked, has_failed;
    struct fault fault; /* the first */
};

/* Ends the exchange if all answers have come, but not before all questions have been asked, since it frees the
 * exchange. */
static void judge(struct exchange *x, struct djl_texts *t)
{
    if (!t->all_asked || (t->n_open > 0 && !t->has_failed))
        return;
    if (t->has_failed)
        exchange_fail_anywhere(x, &t->fault);
    else
        exchange_answer_json(x, 200, json_pack("{s:O}", "outputs", t->outputs));
}

static void fail_texts(struct exchange *x, struct djl_texts *t, const struct fault *f)
{
    if (!t->has_failed)
        t->fault = *f;
    t->has_failed = true;
    judge(x, t);
}

static void fail_reply(struct exchange *x, struct djl_texts *t, const json_t *reply)
{
    struct fault f = fault_of_reply(reply);
    fail_texts(x, t, &f);
}

static void generated(struct exchange *x, void *context, json_t *reply, bool last)
{
    const struct djl_text *one = context;
    struct djl_texts *t = one->all;
    (void)last; /* there is one reply */
    t->n_open--;
    if (!exchange_is_good(reply)) {
        fail_reply(x, t, reply);
        return;
    }
    (void)json_array_set(t->outputs, one->i,
                         json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "text"));
    judge(x, t);
}

static void text_counted(struct exchange *x, void *context, json_t *reply, bool last)
{
    struct djl_text *one = context;
    struct djl_texts *t = one->all;
    json_int_t n = json_integer_value(json_object_get(reply, "count"));
    (void)last;
    if (!exchange_is_good(reply)) {
        t->n_open--;
        fail_reply(x, t, reply);
    } else if (n >= t->seq_length) {
        struct fault f =
            fault_make(400, "seq_length", "seq_length: found %lld, expected more than the %lld of text[%zu]",
                       (long long)t->seq_length, (long long)n, one->i);
        t->n_open--;
        fail_texts(x, t, &f);
    } else {
        json_t *message = json_copy(t->rest);
        (void)json_object_set(message, "prompt", json_array_get(t->texts, one->i));
        (void)json_object_set_new(message, "max_tokens", json_integer(t->seq_length - n));
        (void)json_object_set_new(message, "echo", json_true());
        const struct exchange_question q = {.model = t->model, .message = message, .reply = generated, .context = one};
        exchange_ask(x, &q);
    }
}

static void ask_all(struct exchange *x, struct djl_texts *t)
{
    t->n_open = t->n;
    for (size_t i = 0; i < t->n; i++) {
        json_t *message = json_pack("{s:s, s:O}", "op", "tokenize", "prompt", json_array_get(t->texts, i));
        t->text[i] = (struct djl_text){t, i};
        (void)json_array_append_new(t->outputs, json_null());
        const struct exchange_question q = {
            .model = t->model, .message = message, .reply = text_counted, .context = &t->text[i]};
        exchange_ask(x, &q);
    }
    t->all_asked = true;
    judge(x, t);
}

/* ---------------------------------------------------------------- the body */

static void read_texts(struct djl_texts *t, json_t *value, struct fault *f)
{
    const json_t *one;
    size_t i;
    t->texts = json_is_string(value) ? json_pack("[O]", value) : json_incref(value);
    t->n = json_array_size(t->texts);
    if (t->n == 0 || t->n > MAX_TEXTS)
        *f = fault_make(400, "text", "text: found %s of %zu, expected a text or a list of 1 to %d texts",
                        json_type_name(value), t->n, MAX_TEXTS);
    json_array_foreach(t->texts, i, one)
    {
        if (!json_is_string(one) && f->status == 0)
            (void)chat_wrong(f, "text", one, "a list of texts");
    }
}

static void read_body(struct djl_texts *t, const json_t *body, struct fault *f)
{
    static const struct chat_field here[] = {
        {"text", NULL}, {"seq_length", NULL}, {"model", NULL}, {"prompt", "text"}, {"stream", "text"}};
    const json_t *length = json_object_get(body, "seq_length");
    t->rest = json_pack("{s:b}", "text", 1); /* listed so that these names are refused */
    t->outputs = json_array();
    read_texts(t, json_object_get(body, "text"), f);
    if (f->status == 0 && (!json_is_integer(length) || json_integer_value(length) < 1))
        (void)chat_wrong(f, "seq_length", length, "tokens of prompt and answer together, at least 1");
    t->seq_length = json_integer_value(length);
    if (f->status == 0)
        (void)chat_copy_fields(t->rest, body, here, sizeof here / sizeof here[0], f);
    (void)json_object_del(t->rest, "text");
    if (json_object_get(t->rest, "top_k") == NULL && json_object_get(t->rest, "temperature") == NULL)
        (void)json_object_set_new(t->rest, "top_k", json_integer(TOP_K));
}

static void drop(void *state)
{
    struct djl_texts *t = state;
    json_decref(t->rest);
    json_decref(t->texts);
    json_decref(t->outputs);
    free(t->text);
    free(t);
}

void djl_answer_texts(struct exchange *x, json_t *body, const char *model)
{
    struct djl_texts *t = exchange_state(x, sizeof *t, drop);
    struct fault f = {0};
    if (t == NULL) {
        json_decref(body);
        return;
    }
    (void)snprintf(t->model, sizeof t->model, "%s", model);
    read_body(t, body, &f);
    json_decref(body);
    t->text = f.status == 0 ? calloc(t->n, sizeof *t->text) : NULL;
    if (f.status == 0 && t->text == NULL)
        f = fault_make(500, "", "out of host memory: %zu texts", t->n);
    if (f.status != 0) {
        exchange_fail(x, &f);
        return;
    }
    ask_all(x, t);
}
