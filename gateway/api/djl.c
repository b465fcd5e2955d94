/* gateway/api/djl.c - see djl.h: failures, plain text, {"inputs", "parameters"}. */
#include "gateway/api/djl.h"
#include "base/json.h"
#include "gateway/api/chat_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PLAIN_TOKENS 256 /* default for a prompt as plain text */
#define PLAIN_TOP_K  50  /* sampling defaults, those of transformers' pipelines */

/* ---------------------------------------------------------------- failures */

/* Failures of the model itself get status 424. */
static int status_of(const struct fault *f)
{
    return f->status == 500 || f->status == 502 ? 424 : f->status == 429 ? 503 : f->status;
}

static const char *type_of(int status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "UnauthorizedException"},          {404, "ModelNotFoundException"},
                 {405, "MethodNotAllowedException"},      {408, "TimeoutException"},
                 {413, "RequestEntityTooLargeException"}, {424, "TranslateException"},
                 {503, "ServiceUnavailableException"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status)
            return types[i].type;
    return "BadRequestException";
}

static void write_fault(const struct fault *f, struct bytes *to)
{
    int status = status_of(f);
    bytes_format(to, "{\"code\":%d,\"type\":\"%s\",\"message\":", status, type_of(status));
    bytes_json_string(to, f->message, strlen(f->message));
    bytes_text(to, "}");
}

const struct dialect djl_dialect = {.type = "application/json", .write = write_fault, .status = status_of};

/* ---------------------------------------------------------------- {"inputs", "parameters"} */

static void write_line(struct exchange *x, const json_t *line)
{
    char *text = json_text(line, JSON_COMPACT);
    struct bytes *b = exchange_open_piece(x);
    bytes_text(b, text != NULL ? text : "");
    b->failed = b->failed || text == NULL;
    bytes_text(b, "\n");
    exchange_close_piece(x);
    free(text);
}

/* The last line alone has generated_text and details. */
static void send_line(struct exchange *x, json_t *piece)
{
    (void)json_object_del(piece, "index");
    if (json_is_null(json_object_get(piece, "generated_text"))) {
        (void)json_object_del(piece, "generated_text");
        (void)json_object_del(piece, "details");
    }
    write_line(x, piece);
    json_decref(piece);
}

static void send_fault(struct exchange *x, const struct fault *f)
{
    json_t *line =
        json_pack("{s:{s:i, s:s, s:i, s:b}, s:s, s:{s:s, s:s}}", "token", "id", -1, "text", "", "log_prob", -1,
                  "special_token", 1, "generated_text", "", "details", "finish_reason", "error", "error", f->message);
    write_line(x, line);
    json_decref(line);
}

static const struct inputs_style style = {.logprob = "log_prob",
                                          .max_new_tokens = 30,
                                          .stream_type = "application/jsonlines",
                                          .piece = send_line,
                                          .fail = send_fault};

void djl_answer(struct exchange *x, json_t *body, const char *model)
{
    if (json_object_get(body, "text") != NULL)
        djl_answer_texts(x, body, model);
    else
        inputs_answer(x, body, &style, model, false);
}

void djl_answer_text(struct exchange *x, const char *model)
{
    size_t bytes = 0;
    const char *text = exchange_body(x, &bytes);
    json_t *prompt = json_stringn(text, bytes);
    struct fault f = fault_make(400, "", "the body: found bytes that are not UTF-8, expected text");
    if (prompt == NULL) {
        exchange_fail(x, &f);
        return;
    }
    json_t *body = json_pack("{s:o, s:{s:b, s:b, s:i, s:i}}", "inputs", prompt, "parameters", "do_sample", 1,
                             "return_full_text", 1, "top_k", PLAIN_TOP_K, "max_new_tokens", PLAIN_TOKENS);
    inputs_answer(x, body, &style, model, true);
}

/* ---------------------------------------------------------------- paths */

bool djl_is_plain(const struct exchange *x)
{
    const char *type = exchange_header(x, "content-type");
    return type != NULL && strncasecmp(type, "text/plain", 10) == 0;
}

/* "model", or "model/1": a version is a number. */
static void read_model(const struct exchange *x, char *model, size_t bytes)
{
    char *slash;
    (void)snprintf(model, bytes, "%s", x->tail[0]);
    slash = strrchr(model, '/');
    if (!openai_serves(x, model) && slash != NULL && slash[1] != '\0' &&
        strspn(slash + 1, "0123456789") == strlen(slash + 1))
        *slash = '\0';
}

void djl_predict(struct exchange *x)
{
    char model[EXCHANGE_TAIL_BYTES];
    read_model(x, model, sizeof model);
    exchange_is_text(x, model);
    if (djl_is_plain(x)) {
        djl_answer_text(x, model);
        return;
    }
    json_t *body = exchange_json(x);
    if (body != NULL)
        djl_answer(x, body, model);
}
