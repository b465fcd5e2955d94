/* gateway/api/sagemaker.c - see sagemaker.h. Request signatures are not verified; with --api-keys the access key's id
 * must be one of the keys. */
#include "gateway/api/sagemaker.h"
#include "base/json.h"
#include "gateway/api/djl.h"
#include "gateway/api/eventstream.h"
#include "gateway/api/openai.h"

#include <stdio.h>
#include <string.h>

#define TARGET "x-amzn-sagemaker-target-model"

/* ---------------------------------------------------------------- failures of an endpoint */

/* A message of the container is passed on as an error of the model, with its text. */
static const struct {
    int from, status;
    const char *type;
} kinds[] = {{401, 403, "AccessDeniedException"},
             {403, 403, "AccessDeniedException"},
             {404, 400, "ValidationError"},
             {405, 400, "ValidationError"},
             {429, 503, "ServiceUnavailable"},
             {503, 503, "ServiceUnavailable"},
             {0, 424, "ModelError"}};

#define N_KINDS (sizeof kinds / sizeof kinds[0])

static size_t kind_of(const struct fault *f)
{
    size_t i = 0;
    while (i + 1 < N_KINDS && kinds[i].from != f->status)
        i++;
    return i;
}

static int status_of(const struct fault *f)
{
    return kinds[kind_of(f)].status;
}

static void write_type(const struct fault *f, struct bytes *to)
{
    bytes_format(to, "x-amzn-errortype: %s\r\n", kinds[kind_of(f)].type);
}

static void write_fault(const struct fault *f, struct bytes *to)
{
    bytes_text(to, "{\"Message\":");
    bytes_json_string(to, f->message, strlen(f->message));
    if (kind_of(f) == N_KINDS - 1) {
        bytes_format(to, ",\"OriginalStatusCode\":%d,\"OriginalMessage\":", f->status);
        bytes_json_string(to, f->message, strlen(f->message));
    }
    bytes_text(to, "}");
}

const struct dialect sagemaker_dialect = {.type = "application/json",
                                          .write = write_fault,
                                          .status = status_of,
                                          .fields = write_type,
                                          .id_field = "x-amzn-RequestId",
                                          .stream_end = "data: [DONE]\n\n"};

/* ---------------------------------------------------------------- bodies */

/* "org/x.tar.gz" and "org/x.tar" are archives of model "org/x". */
static void read_target(const struct exchange *x, char *model, size_t bytes)
{
    static const char *const archive[] = {".tar.gz", ".tar"};
    const char *target = exchange_header(x, TARGET);
    size_t n = target != NULL ? strlen(target) : 0;
    for (size_t i = 0; target != NULL && target[n] == '\0' && i < sizeof archive / sizeof archive[0]; i++)
        if (n > strlen(archive[i]) && strcmp(target + n - strlen(archive[i]), archive[i]) == 0)
            n -= strlen(archive[i]);
    (void)snprintf(model, bytes, "%.*s", (int)n, target != NULL ? target : "");
}

/* own: failures have the form of the body's API. */
static void answer_openai(struct exchange *x, json_t *body, const char *model, bool own)
{
    if (own)
        x->dialect = &openai_dialect;
    if (model[0] != '\0')
        (void)json_object_set_new(body, "model", json_string(model));
    openai_answer(x, body, json_object_get(body, "messages") != NULL);
}

static void answer_djl(struct exchange *x, json_t *body, const char *model, bool own)
{
    const char *named = json_string_value(json_object_get(body, "model"));
    char name[EXCHANGE_TAIL_BYTES];
    (void)snprintf(name, sizeof name, "%s", model[0] == '\0' && named != NULL ? named : model);
    if (own)
        x->dialect = &djl_dialect;
    djl_answer(x, body, name);
}

static void answer_invocation(struct exchange *x, const char *model, bool own)
{
    x->returned = "x-amzn-sagemaker-custom-attributes";
    exchange_is_text(x, model[0] != '\0' ? model : openai_only_model(x));
    if (djl_is_plain(x)) {
        if (own)
            x->dialect = &djl_dialect;
        djl_answer_text(x, model);
        return;
    }
    json_t *body = exchange_json(x);
    if (body == NULL)
        return;
    if (json_object_get(body, "messages") != NULL || json_object_get(body, "prompt") != NULL) {
        answer_openai(x, body, model, own);
    } else if (json_object_get(body, "inputs") != NULL || json_object_get(body, "text") != NULL) {
        answer_djl(x, body, model, own);
    } else {
        struct fault f = fault_make(400, "", "the body: expected one of messages, prompt, inputs, text");
        json_decref(body);
        exchange_fail(x, &f);
    }
}

void sagemaker_invocations(struct exchange *x)
{
    char model[EXCHANGE_TAIL_BYTES];
    read_target(x, model, sizeof model);
    answer_invocation(x, model, true);
}

void sagemaker_invoke(struct exchange *x)
{
    answer_invocation(x, x->tail[0], true);
}

/* The endpoint's name is the user's; if it is that of a model, it is this model's. */
void sagemaker_endpoint(struct exchange *x)
{
    char model[EXCHANGE_TAIL_BYTES];
    read_target(x, model, sizeof model);
    if (model[0] == '\0' && openai_serves(x, x->tail[0]))
        (void)snprintf(model, sizeof model, "%s", x->tail[0]);
    answer_invocation(x, model, false);
}

void sagemaker_endpoint_stream(struct exchange *x)
{
    x->framing = &eventstream_framing;
    sagemaker_endpoint(x);
}
