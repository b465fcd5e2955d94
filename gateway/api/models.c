/* gateway/api/models.c - see models.h. */
#include "gateway/api/models.h"
#include "base/json.h"
#include "gateway/api/openai.h"

#include <stdlib.h>
#include <string.h>

/* The entry has the fields of each family of clients. */
static void write_fault(const struct fault *f, struct bytes *to)
{
    bytes_format(to, "{\"code\":%d,\"type\":\"%s\",\"message\":", f->status, f->type);
    bytes_json_string(to, f->message, strlen(f->message));
    bytes_text(to, ",\"error\":");
    bytes_json_string(to, f->message, strlen(f->message));
    bytes_text(to, "}");
}

const struct dialect models_dialect = {.type = "application/json", .write = write_fault};

json_t *models_known(const struct exchange *x)
{
    json_t *all = json_object();
    for (const struct backend *b = x->gateway->pool.first; b != NULL; b = b->next) {
        json_t *m;
        size_t i;
        json_array_foreach(json_object_get(b->models, "models"), i, m)
        {
            const char *id = json_string_value(json_object_get(m, "id"));
            if (backend_takes(b) && id != NULL && (json_object_get(all, id) == NULL || models_is_loaded(m)))
                (void)json_object_set(all, id, m);
        }
    }
    return all;
}

bool models_is_loaded(const json_t *m)
{
    const char *state = json_string_value(json_object_get(m, "state"));
    return state == NULL || strcmp(state, "ready") == 0;
}

json_t *models_names(const struct exchange *x)
{
    json_t *all = models_known(x), *list = json_array(), *m;
    const char *key;
    json_object_foreach(all, key, m)
    {
        if (models_is_loaded(m))
            (void)json_array_append_new(list, json_string(key));
    }
    json_decref(all);
    return list;
}

struct fault models_unknown(const struct exchange *x, const char *name)
{
    char text[POOL_UNKNOWN_BYTES];
    pool_say_unknown(&x->gateway->pool, name, text, sizeof text);
    struct fault f = fault_make(404, "model", "the model %s", text);
    f.code = "model_not_found";
    return f;
}

struct fault models_refusal(const char *what)
{
    return fault_make(400, "", "%s models is not implemented: a job serves the model that it was started with", what);
}

static json_t *entry_of(const json_t *name)
{
    return json_pack("{s:O, s:O, s:s}", "modelName", name, "modelUrl", name, "status", "READY");
}

/* A number of the query, "name=7"; missing if it is not there. */
static size_t query_number(const struct exchange *x, const char *name, size_t missing)
{
    const char *at = x->conn->head->query;
    size_t n = strlen(name);
    for (; *at != '\0'; at += strcspn(at, "&"), at += *at == '&')
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return strtoul(at + n + 1, NULL, 10);
    return missing;
}

void models_list(struct exchange *x)
{
    json_t *names = models_names(x), *list = json_array();
    size_t n = json_array_size(names), i = query_number(x, "next_page_token", 0);
    size_t limit = query_number(x, "limit", 0), most = limit > 0 ? limit : n;
    size_t end = i < n && most < n - i ? i + most : n;
    for (; i < end; i++)
        (void)json_array_append_new(list, entry_of(json_array_get(names, i)));
    json_t *answer = json_pack("{s:o}", "models", list);
    if (end < n)
        (void)json_object_set_new(answer, "nextPageToken", json_sprintf("%zu", end));
    json_decref(names);
    exchange_answer_json(x, 200, answer);
}

/* Is the model of the path known? If not, the client has been told. The entry: a new reference. */
static json_t *find_known(struct exchange *x)
{
    json_t *all = models_known(x), *m = json_incref(json_object_get(all, x->tail[0]));
    struct fault f = models_unknown(x, x->tail[0]);
    json_decref(all);
    if (m == NULL)
        exchange_fail(x, &f);
    return m;
}

void models_show(struct exchange *x)
{
    json_t *m = find_known(x), *name = json_string(x->tail[0]);
    struct fault f = fault_make(404, "model", "the model \"%.200s\" is not loaded", x->tail[0]);
    if (m != NULL && !models_is_loaded(m)) {
        exchange_fail(x, &f);
    } else if (m != NULL) {
        json_t *answer = entry_of(name);
        (void)json_object_set_new(answer, "models", json_pack("[o]", entry_of(name)));
        exchange_answer_json(x, 200, answer);
    }
    json_decref(m);
    json_decref(name);
}

/* ---- loading and unloading, by a job that has several models */

struct management {
    void (*answer)(struct exchange *x);
};

static void managed(struct exchange *x, void *context, json_t *reply, bool last)
{
    const struct management *m = context;
    (void)last;
    pool_refresh(&x->gateway->pool);
    if (exchange_is_good(reply))
        m->answer(x);
    else
        exchange_fail_reply(x, reply);
}

void models_manage(struct exchange *x, const char *op, const char *name, void (*answer)(struct exchange *x))
{
    struct management *m = exchange_state(x, sizeof *m, free);
    if (m == NULL)
        return;
    m->answer = answer;
    const struct exchange_question q = {
        .model = name, .message = json_pack("{s:s, s:s}", "op", op, "model", name), .reply = managed, .context = m};
    exchange_ask(x, &q);
}

bool models_are_managed(const struct exchange *x, const char *name)
{
    for (const struct backend *b = x->gateway->pool.first; b != NULL; b = b->next)
        if (backend_takes(b) && backend_is_shared(b) && (name == NULL || backend_model(b, name) != NULL))
            return true;
    return false;
}

static void refuse_models(struct exchange *x, const char *what)
{
    struct fault f = models_refusal(what);
    exchange_fail(x, &f);
}

static void answer_status(struct exchange *x)
{
    exchange_answer_json(x, 200, json_pack("{s:s}", "status", "done"));
}

/* {"model_name", "url"} of a multi-model endpoint; DJLServing's has a query. */
void models_load(struct exchange *x)
{
    size_t bytes = 0;
    (void)exchange_body(x, &bytes);
    json_t *body = bytes > 0 ? exchange_json(x) : json_object();
    if (body == NULL)
        return;
    const char *name = json_string_value(json_object_get(body, "model_name"));
    struct fault f = models_refusal("loading");
    if (name == NULL && models_are_managed(x, NULL))
        f = fault_make(400, "model_name", "model_name: missing, expected the name of a model in the job's folder");
    if (name != NULL && models_are_managed(x, name)) {
        models_manage(x, "load", name, answer_status);
        json_decref(body);
        return;
    }
    if (name != NULL && openai_serves(x, name))
        f = fault_make(409, "", "the model \"%.200s\" is loaded already", name);
    else if (name != NULL && models_are_managed(x, NULL))
        f = fault_make(404, "model_name", "there is no model \"%.200s\" in the job's folder", name);
    json_decref(body);
    exchange_fail(x, &f);
}

void models_scale(struct exchange *x)
{
    json_t *m = find_known(x);
    if (m != NULL)
        refuse_models(x, "scaling");
    json_decref(m);
}

void models_unload(struct exchange *x)
{
    json_t *m = find_known(x);
    bool known = m != NULL;
    json_decref(m);
    if (known && models_are_managed(x, x->tail[0]))
        models_manage(x, "unload", x->tail[0], answer_status);
    else if (known)
        refuse_models(x, "unloading");
}
