/* client/bench_model.c - see bench_model.h. */
#include "client/bench_model.h"
#include "client/ask.h"
#include "client/message.h"

#include <stdio.h>
#include <string.h>

#define ASK_SECONDS 30.0

static const json_t *find_named(const json_t *models, const char *name)
{
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *model = json_array_get(models, i);
        const char *id = json_string_value(json_object_get(model, "id"));
        if (name == NULL || (id != NULL && strcmp(id, name) == 0))
            return model;
    }
    return NULL;
}

/* Asks the server for its models and keeps the name and vocabulary (0: not opened yet) of the chosen one. */
static int ask_models(struct bench_model *m, struct connection *c, const char *name, struct err *e)
{
    json_t *reply = ask_op(c, "models", ASK_SECONDS, e);
    const json_t *models = json_object_get(reply, "models"), *model = find_named(models, name);
    const char *id = json_string_value(json_object_get(model, "id"));
    m->vocab = json_integer_value(json_object_get(model, "vocab_size"));
    (void)snprintf(m->name, sizeof m->name, "%s", id != NULL ? id : "?");
    if (reply != NULL && name == NULL && json_array_size(models) > 1)
        (void)ERR(e, ERR_USAGE, "%s has %zu models, expected --model NAME", c->endpoint, json_array_size(models));
    else if (reply != NULL && model == NULL && name != NULL)
        (void)ERR(e, ERR_USAGE, "--model %.100s: %s has no such model", name, c->endpoint);
    json_decref(reply);
    return e->code == ERR_NONE ? 0 : -1;
}

/* Has the server load the model of this name for a request of one token. */
static int load_by_request(struct connection *c, const char *name, double timeout, struct err *e)
{
    json_t *request = json_pack("{s:s, s:s, s:[i], s:i, s:i}", "request_id", "bench-wake", "model", name, "prompt", 0,
                                "max_tokens", 1, "temperature", 0);
    int status = request != NULL ? connection_send(c, request, e) : ERR(e, ERR_MEMORY, "out of host memory: a request");
    json_t *reply = status == 0 ? connection_receive(c, timeout > 0 ? timeout : -1, e) : NULL;
    if (reply != NULL)
        (void)message_check(reply, e);
    else if (status == 0 && e->code == ERR_NONE)
        (void)ERR(e, ERR_COMM, "%s: no answer of model %.100s within %g s", c->endpoint, name, timeout);
    json_decref(reply);
    json_decref(request);
    return e->code == ERR_NONE ? 0 : -1;
}

int bench_model_find(struct bench_model *m, struct connection *c, const struct client_bench_options *o, struct err *e)
{
    const char *name = json_string_value(json_object_get(o->call.request, "model"));
    if (ask_models(m, c, name, e) != 0)
        return -1;
    if (name == NULL)
        name = m->name;
    if (m->vocab <= 0 && (load_by_request(c, name, o->call.timeout, e) != 0 || ask_models(m, c, name, e) != 0))
        return -1;
    return m->vocab > 0 ? 0 : ERR(e, ERR_COMM, "%s: the reply to models has no vocab_size of %s", c->endpoint, m->name);
}
