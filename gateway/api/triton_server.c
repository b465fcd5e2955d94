/* gateway/api/triton_server.c - see triton.h: metadata of the server, its models and its repository. */
#include "base/json.h"
#include "gateway/api/models.h"
#include "gateway/api/openai.h"
#include "gateway/api/triton.h"

#include <string.h>

static bool is_well(const struct exchange *x)
{
    return pool_n_ready(&x->gateway->pool) > 0 && !x->gateway->draining;
}

static void answer_empty(struct exchange *x, bool well)
{
    exchange_answer(x, well ? 200 : 400, "application/json", "", 0);
}

void triton_server(struct exchange *x)
{
    exchange_answer_json(x, 200,
                         json_pack("{s:s, s:s, s:[s, s, s]}", "name", "lockstep-gateway", "version", LOCKSTEP_VERSION,
                                   "extensions", "generate", "model_repository", "statistics"));
}

void triton_live(struct exchange *x)
{
    answer_empty(x, true);
}

void triton_ready(struct exchange *x)
{
    answer_empty(x, is_well(x));
}

/* ---------------------------------------------------------------- models */

/* Is the model of the path served? If not, the client has been told. */
static bool is_served(struct exchange *x)
{
    bool served = openai_serves(x, x->tail[0]);
    struct fault f = fault_make(404, "", "Request for unknown model: '%.200s' is not found", x->tail[0]);
    if (!served)
        exchange_fail(x, &f);
    return served;
}

/* Texts come and go as such, not as tensors. */
void triton_infer(struct exchange *x)
{
    struct fault f = fault_make(
        400, "", "tensors are not supported: expected /v2/models/%.200s/generate or /generate_stream", x->tail[0]);
    if (is_served(x))
        exchange_fail(x, &f);
}

static json_t *tensor(const char *name, bool config)
{
    return config ? json_pack("{s:s, s:s, s:[i]}", "name", name, "data_type", "TYPE_STRING", "dims", 1)
                  : json_pack("{s:s, s:s, s:[i]}", "name", name, "datatype", "BYTES", "shape", 1);
}

void triton_model(struct exchange *x)
{
    if (is_served(x))
        exchange_answer_json(x, 200,
                             json_pack("{s:s, s:[s], s:s, s:[o], s:[o]}", "name", x->tail[0], "versions", "1",
                                       "platform", "lockstep", "inputs", tensor("text_input", false), "outputs",
                                       tensor("text_output", false)));
}

void triton_model_ready(struct exchange *x)
{
    answer_empty(x, openai_serves(x, x->tail[0]) && is_well(x));
}

void triton_config(struct exchange *x)
{
    if (is_served(x))
        exchange_answer_json(x, 200,
                             json_pack("{s:s, s:s, s:s, s:i, s:[o], s:[o], s:{s:b}}", "name", x->tail[0], "platform",
                                       "lockstep", "backend", "lockstep", "max_batch_size", 0, "input",
                                       tensor("text_input", true), "output", tensor("text_output", true),
                                       "model_transaction_policy", "decoupled", 1));
}

/* A count and the nanoseconds of all. */
static json_t *duration(uint64_t n, double seconds)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)n, "ns", (json_int_t)(1e9 * seconds));
}

static json_t *stats_of(const char *name, const struct answer_count *m)
{
    static const struct answer_count none;
    m = m != NULL ? m : &none;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:{s:o, s:o, s:o, s:o, s:o, s:o}, s:[], s:[]}", "name", name, "version",
                     "1", "last_inference", (json_int_t)(1e3 * m->last), "inference_count", (json_int_t)m->n_good,
                     "execution_count", (json_int_t)m->n_good, "inference_stats", "success",
                     duration(m->n_good, m->good_seconds), "fail", duration(m->n_bad, m->bad_seconds), "queue",
                     duration(m->n_good, m->queue_seconds), "compute_input", duration(m->n_good, 0), "compute_infer",
                     duration(m->n_good, m->compute_seconds), "compute_output", duration(m->n_good, 0), "batch_stats",
                     "memory_usage");
}

/* Statistics of one model, or of all. */
void triton_stats(struct exchange *x)
{
    json_t *names = x->tail[0][0] != '\0' ? json_pack("[s]", x->tail[0]) : models_names(x), *list = json_array();
    const json_t *name;
    size_t i;
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        (void)json_array_append_new(list, stats_of(text, answer_counts_find(&x->gateway->models, text)));
    }
    json_decref(names);
    json_t *answer = json_pack("{s:o}", "model_stats", list);
    if (x->tail[0][0] == '\0' || is_served(x))
        exchange_answer_json(x, 200, answer);
    else
        json_decref(answer);
}

/* ---------------------------------------------------------------- the repository */

static const char *state_of(const json_t *m)
{
    const char *state = json_string_value(json_object_get(m, "state"));
    if (models_is_loaded(m))
        return "READY";
    return strcmp(state, "loading") == 0 ? "LOADING" : strcmp(state, "unloading") == 0 ? "UNLOADING" : "UNAVAILABLE";
}

void triton_index(struct exchange *x)
{
    json_t *all = models_known(x), *list = json_array(), *m;
    const char *name;
    json_object_foreach(all, name, m)
    {
        const char *reason = json_string_value(json_object_get(m, "reason"));
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", name, "version", "1", "state",
                                                    state_of(m), "reason", reason != NULL ? reason : ""));
    }
    json_decref(all);
    exchange_answer_json(x, 200, list);
}

static void answer_done(struct exchange *x)
{
    answer_empty(x, true);
}

/* A loaded model stays loaded. */
void triton_load(struct exchange *x)
{
    struct fault f = models_refusal("loading");
    json_t *all = models_known(x), *m = json_object_get(all, x->tail[0]);
    bool loaded = m != NULL && models_is_loaded(m);
    json_decref(all);
    if (loaded)
        answer_empty(x, true);
    else if (models_are_managed(x, x->tail[0]))
        models_manage(x, "load", x->tail[0], answer_done);
    else
        exchange_fail(x, &f);
}

void triton_unload(struct exchange *x)
{
    struct fault f = models_refusal("unloading");
    if (models_are_managed(x, x->tail[0]))
        models_manage(x, "unload", x->tail[0], answer_done);
    else
        exchange_fail(x, &f);
}
