/* gateway/api/openai.c - see openai.h: answers in one piece. */
#include "gateway/api/openai.h"
#include "base/json.h"
#include "base/prompt_scores.h"
#include "gateway/api/models.h"
#include "gateway/api/openai_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct dialect openai_dialect = {
    .type = "application/json", .write = fault_write_openai, .stream_end = "data: [DONE]\n\n"};

/* ---------------------------------------------------------------- models */

static json_t *card_of(const struct exchange *x, const json_t *m)
{
    const json_t *most = json_object_get(m, "max_model_len");
    const char *id = json_string_value(json_object_get(m, "id"));
    json_t *card =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:O?}", "id", id, "object", "model", "created",
                  (json_int_t)x->gateway->started, "owned_by", "lockstep", "root", id, "parent", "max_model_len", most);
    if (json_object_get(m, "pinned") != NULL) /* one of several, which come and go */
        (void)json_object_set(card, "state", json_object_get(m, "state"));
    return card;
}

/* The entry of a model, or of all that are served (model ""), each once. f: NULL on success. */
static void each_model(const struct exchange *x, void (*f)(const struct exchange *x, const json_t *m, void *to),
                       void *to)
{
    for (const struct backend *b = x->gateway->pool.first; b != NULL; b = b->next) {
        const json_t *m;
        size_t i;
        json_array_foreach(json_object_get(b->models, "models"), i, m)
        {
            if (backend_takes(b) && json_is_string(json_object_get(m, "id")))
                f(x, m, to);
        }
    }
}

static void add_card(const struct exchange *x, const json_t *m, void *to)
{
    const json_t *other, *id = json_object_get(m, "id");
    size_t i;
    json_array_foreach((json_t *)to, i, other)
    {
        if (json_equal(json_object_get(other, "id"), id))
            return;
    }
    (void)json_array_append_new(to, card_of(x, m));
}

void openai_models(struct exchange *x)
{
    json_t *list = json_array();
    each_model(x, add_card, list);
    exchange_answer_json(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

void openai_model(struct exchange *x)
{
    json_t *list = json_array(), *found = NULL, *card;
    size_t i;
    each_model(x, add_card, list);
    json_array_foreach(list, i, card)
    {
        if (strcmp(json_string_value(json_object_get(card, "id")), x->tail[0]) == 0)
            found = json_incref(card);
    }
    json_decref(list);
    if (found != NULL) {
        exchange_answer_json(x, 200, found);
        return;
    }
    struct fault f = models_unknown(x, x->tail[0]);
    exchange_fail(x, &f);
}

static void note_model(const struct exchange *x, const json_t *m, void *to)
{
    const char **only = to, *id = json_string_value(json_object_get(m, "id"));
    (void)x;
    *only = *only == NULL || strcmp(*only, id) == 0 ? id : "";
}

const char *openai_only_model(const struct exchange *x)
{
    const char *only = NULL;
    each_model(x, note_model, &only);
    return only != NULL ? only : "";
}

bool openai_serves(const struct exchange *x, const char *model)
{
    for (const struct backend *b = x->gateway->pool.first; b != NULL; b = b->next)
        if (model[0] != '\0' && backend_takes(b) && backend_model(b, model) != NULL)
            return true;
    return false;
}

/* ---------------------------------------------------------------- answers */

json_t *openai_usage(const json_t *reply)
{
    const json_t *usage = json_object_get(reply, "usage");
    json_int_t prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
    json_int_t completion = json_integer_value(json_object_get(usage, "completion_tokens"));
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:O*}", "prompt_tokens", prompt, "completion_tokens", completion,
                     "total_tokens", prompt + completion, "prompt_tokens_details", "cached_tokens",
                     json_integer_value(json_object_get(usage, "cached_tokens")), "completion_tokens_details",
                     json_object_get(usage, "completion_tokens_details"));
}

/* The parts that the backend made of the answer, or the text. With the members that have nothing to say here, but are
 * missed. */
static json_t *message_of(const json_t *c)
{
    json_t *said = json_object_get(c, "message");
    json_t *message = json_pack("{s:s, s:O?, s:n, s:[]}", "role", "assistant", "content", json_object_get(c, "text"),
                                "refusal", "annotations");
    if (json_is_object(said))
        (void)json_object_update(message, said);
    return message;
}

/* The prompt's token ids and log-probabilities, where vLLM has them: in a chat's answer, or in a completion's choice.
 * With echo the lists of log-probabilities, if there are any, begin with those of the prompt. */
static void put_prompt(json_t *object, const struct openai_answer *a, const json_t *c)
{
    const json_t *entries = json_object_get(c, "prompt_logprobs");
    if (a->asked.ids)
        (void)json_object_set(object, "prompt_token_ids", json_object_get(c, "prompt_token_ids"));
    if (entries != NULL && !(a->asked.echo && json_object_get(c, "logprobs") != NULL))
        (void)json_object_set_new(object, "prompt_logprobs", prompt_scores(entries));
}

static json_t *choice_of(const struct openai_answer *a, const json_t *c)
{
    int64_t offset = 0;
    json_t *choice = json_pack("{s:O?}", "index", json_object_get(c, "index"));
    json_t *text = json_object_get(c, "text"), *logprobs = openai_logprobs(c, &a->asked, &offset);
    if (a->asked.chat)
        (void)json_object_set_new(choice, "message", message_of(c));
    else
        (void)json_object_set(choice, "text", text);
    (void)json_object_set_new(choice, "logprobs", logprobs);
    (void)json_object_set(choice, "finish_reason", json_object_get(c, "finish_reason"));
    if (json_object_get(c, "error") != NULL)
        (void)json_object_set(choice, "error", json_object_get(c, "error"));
    if (a->asked.ids)
        (void)json_object_set(choice, "token_ids", json_object_get(c, "token_ids"));
    if (!a->asked.chat)
        put_prompt(choice, a, c);
    return choice;
}

static void answer_whole(struct exchange *x, void *context, json_t *reply, bool last)
{
    const struct openai_answer *a = context;
    const json_t *c;
    json_t *choices = json_array();
    size_t i;
    (void)last; /* there is one reply */
    if (!exchange_is_good(reply)) {
        json_decref(choices);
        exchange_fail_reply(x, reply);
        return;
    }
    json_array_foreach(json_object_get(reply, "choices"), i, c)
    {
        (void)json_array_append_new(choices, choice_of(a, c));
    }
    json_t *answer = json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:s, s:O*}", "id", a->id, "object",
                               a->asked.chat ? "chat.completion" : "text_completion", "created", (json_int_t)x->created,
                               "model", a->asked.model, "choices", choices, "usage", openai_usage(reply),
                               "system_fingerprint", a->fingerprint, "metrics", json_object_get(reply, "metrics"));
    if (a->asked.chat)
        put_prompt(answer, a, json_array_get(json_object_get(reply, "choices"), 0));
    exchange_answer_json(x, 200, answer);
}

static void drop_answer(void *state)
{
    struct openai_answer *a = state;
    free(a->choice);
    free(a);
}

/* The answering server's fingerprint: the version and, if the backend reports other number types than the checkpoint's,
 * these types. */
static void name_fingerprint(const struct exchange *x, struct openai_answer *a)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *variant = NULL;
    for (const struct backend *b = x->gateway->pool.first; b != NULL && variant == NULL; b = b->next)
        variant = json_string_value(json_object_get(backend_model(b, a->asked.model), "variant"));
    bool said = variant != NULL && variant[strspn(variant, letters)] == '\0';
    (void)snprintf(a->fingerprint, sizeof a->fingerprint, "lockstep-" LOCKSTEP_VERSION "%s%.30s", said ? "-" : "",
                   said ? variant : "");
}

void openai_generate(struct exchange *x, const struct openai_request *r, json_t *message)
{
    struct openai_answer *a = exchange_state(x, sizeof *a, drop_answer);
    if (a == NULL) {
        json_decref(message);
        return;
    }
    a->asked = *r;
    name_fingerprint(x, a);
    (void)snprintf(a->id, sizeof a->id, "%s-%s", r->chat ? "chatcmpl" : "cmpl", x->id);
    if (r->stream)
        exchange_will_stream(x);
    const struct exchange_question q = {
        .model = r->model, .message = message, .reply = r->stream ? openai_stream_reply : answer_whole, .context = a};
    exchange_ask(x, &q);
}

/* ---------------------------------------------------------------- requests */

void openai_answer(struct exchange *x, json_t *body, bool chat)
{
    struct openai_request r = {.chat = chat};
    struct fault f = {0};
    const char *needed = chat ? "messages" : "prompt", *other = chat ? "prompt" : "messages";
    json_t *message = NULL;
    if (json_object_get(body, needed) == NULL)
        f = fault_make(400, needed, "%s: missing", needed);
    else if (json_object_get(body, other) != NULL)
        f = fault_make(400, other, "%s: unknown field", other);
    else
        message = openai_translate(x, body, &r, &f);
    json_decref(body);
    if (message == NULL)
        exchange_fail(x, &f);
    else
        openai_generate(x, &r, message);
}

static void start_generation(struct exchange *x, bool chat)
{
    x->tally.is_generate = true;
    json_t *body = exchange_json(x);
    if (body != NULL)
        openai_answer(x, body, chat);
}

void openai_completions(struct exchange *x)
{
    start_generation(x, false);
}

void openai_chat(struct exchange *x)
{
    start_generation(x, true);
}
