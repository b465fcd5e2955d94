/* gateway/api/tgi.c - see tgi.h. */
#include "gateway/api/tgi.h"
#include "base/json.h"
#include "gateway/api/inputs.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- failures */

static const struct {
    int from, status;
    const char *type;
} kinds[] = {{400, 422, "validation"},  {413, 422, "validation"},     {408, 424, "generation"},
             {429, 429, "overloaded"},  {500, 424, "generation"},     {502, 424, "generation"},
             {503, 503, "unhealthy"},   {401, 401, "authentication"}, {404, 404, "not_found"},
             {405, 405, "not_allowed"}, {0, 422, "validation"}};

static size_t kind_of(const struct fault *f)
{
    size_t i = 0;
    while (kinds[i].from != 0 && kinds[i].from != f->status)
        i++;
    return i;
}

static int status_of(const struct fault *f)
{
    return kinds[kind_of(f)].status;
}

static void write_fault(const struct fault *f, struct bytes *to)
{
    bytes_text(to, "{\"error\":");
    bytes_json_string(to, f->message, strlen(f->message));
    bytes_format(to, ",\"error_type\":\"%s\"}", kinds[kind_of(f)].type);
}

const struct dialect tgi_dialect = {.type = "application/json", .write = write_fault, .status = status_of};

/* ---------------------------------------------------------------- generate */

static void send_piece(struct exchange *x, json_t *piece)
{
    exchange_event_json(x, NULL, piece);
}

static void send_fault(struct exchange *x, const struct fault *f)
{
    write_fault(f, exchange_open_event(x, NULL));
    exchange_close_event(x);
}

static const struct inputs_style style = {.logprob = "logprob",
                                          .max_new_tokens = 100,
                                          .values_sample = true,
                                          .has_special = true,
                                          .keeps_stop = true,
                                          .takes_grammar = true,
                                          .piece = send_piece,
                                          .fail = send_fault};

/* stream: from the path; "" takes the body's. */
static void answer(struct exchange *x, const json_t *stream, bool as_list)
{
    exchange_is_text(x, openai_only_model(x));
    json_t *body = exchange_json(x);
    if (body == NULL)
        return;
    if (stream != NULL)
        (void)json_object_set(body, "stream", (json_t *)stream);
    bool streams = json_is_true(json_object_get(body, "stream"));
    inputs_answer(x, body, &style, "", as_list && !streams);
}

/* `stream` in the body has no effect on these two paths. */
void tgi_generate(struct exchange *x)
{
    answer(x, json_false(), false);
}

void tgi_generate_stream(struct exchange *x)
{
    answer(x, json_true(), false);
}

void tgi_root(struct exchange *x)
{
    answer(x, NULL, true);
}

/* ---------------------------------------------------------------- info */

static json_t *first_card(const struct exchange *x)
{
    for (const struct backend *b = x->gateway->pool.first; b != NULL; b = b->next)
        if (backend_takes(b))
            return json_array_get(json_object_get(b->models, "models"), 0);
    return NULL;
}

void tgi_info(struct exchange *x)
{
    const json_t *card = first_card(x);
    json_t *most = json_object_get(card, "max_model_len");
    if (card == NULL) {
        struct fault f = fault_make(503, "", "no backend is ready");
        f.retry_ms = 1000;
        exchange_fail(x, &f);
        return;
    }
    json_t *info = json_pack("{s:O?, s:n, s:O?, s:s, s:O?, s:O?, s:i, s:i, s:s, s:s, s:n, s:n}", "model_id",
                             json_object_get(card, "id"), "model_sha", "model_dtype", json_object_get(card, "dtype"),
                             "model_pipeline_tag", "text-generation", "max_input_tokens", most, "max_total_tokens",
                             most, "max_best_of", 128, "max_stop_sequences", 16, "router", "lockstep-gateway",
                             "version", LOCKSTEP_VERSION, "sha", "docker_label");
    exchange_answer_json(x, 200, info);
}
