/* gateway/exchange/fault.c - see fault.h. */
#include "gateway/exchange/fault.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *type;
} types[] = {
    {401, "authentication_error"}, {403, "permission_error"},    {408, "timeout"},
    {429, "rate_limit_exceeded"},  {503, "service_unavailable"},
};

static const char *type_of(int status)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status)
            return types[i].type;
    return status < 500 || status == 505 ? "invalid_request_error" : "server_error";
}

void fault_make_utf8(char *text)
{
    size_t n = strlen(text);
    for (size_t at; (at = utf8_invalid_at(text, n)) < n;)
        text[at] = '?';
}

struct fault fault_make(int status, const char *param, const char *format, ...)
{
    struct fault f = {.status = status, .type = type_of(status)};
    va_list list;
    va_start(list, format);
    (void)vsnprintf(f.message, sizeof f.message, format, list);
    va_end(list);
    (void)snprintf(f.param, sizeof f.param, "%s", param);
    fault_make_utf8(f.message);
    fault_make_utf8(f.param);
    return f;
}

/* Is it max_tokens, under one of the protocol's names for it? */
static bool is_limit(const char *field)
{
    static const char *const names[] = {"max_tokens", "max_new_tokens", "max_completion_tokens", "n_predict",
                                        "request_output_len"};
    const char *dot = strchr(field, '.'), *name = dot != NULL ? dot + 1 : field;
    size_t i = 0;
    while (i < sizeof names / sizeof names[0] && strcmp(names[i], name) != 0)
        i++;
    return i < sizeof names / sizeof names[0];
}

/* Does a prompt, or its output limit, exceed the context? (And not: the reply a message.) */
static bool is_context(const char *field, const char *message)
{
    bool asked = strncmp(field, "messages", 8) == 0 || is_limit(field) || strcmp(field, "prompt") == 0 ||
                 strncmp(field, "prompt[", 7) == 0;
    return asked && strstr(message, "--max-reply-bytes") == NULL;
}

struct fault fault_of_reply(const json_t *reply)
{
    const json_t *error = json_object_get(reply, "error"), *wait = json_object_get(reply, "retry_after_ms");
    const char *field = json_string_value(json_object_get(error, "field"));
    const char *message = json_string_value(json_object_get(error, "message"));
    json_int_t code = json_integer_value(json_object_get(reply, "code"));
    field = field != NULL ? field : "";
    message = message != NULL ? message : "the backend does not say why";
    int status = code >= 400 && code < 600 ? (int)code : 502;
    const char *between = field[0] != '\0' ? ": " : "";
    struct fault f = fault_make(status, field, "%s%s%s", field, between, message);
    if (status == 404 && strcmp(field, "model") == 0)
        f.code = "model_not_found";
    if (status == 413 && is_context(field, message)) {
        f = fault_make(400, field, "%s%s%s", field, between, message);
        f.code = "context_length_exceeded";
    }
    f.no_retry = status == 408;
    f.retry_ms = json_is_integer(wait) ? json_integer_value(wait) : status == 429 || status == 503 ? 1000 : 0;
    return f;
}

/* Milliseconds from `least` to half as much again: clients that were refused together do not return together. */
static int64_t spread(int64_t least)
{
    uint64_t x = (uint64_t)(1e9 * seconds_now()) * 0x9e3779b97f4a7c15u;
    return least + (int64_t)((x >> 32) % (uint64_t)(least / 2 + 1));
}

void fault_fields(const struct fault *f, struct bytes *to)
{
    if (f->retry_ms > 0)
        bytes_format(to, "Retry-After: %lld\r\nretry-after-ms: %lld\r\n", (long long)(f->retry_ms + 999) / 1000,
                     (long long)spread(f->retry_ms));
    if (f->no_retry)
        bytes_text(to, "x-should-retry: false\r\n");
    if (f->allow != NULL)
        bytes_format(to, "Allow: %s\r\n", f->allow);
    if (f->status == 401)
        bytes_text(to, "WWW-Authenticate: Bearer\r\n");
}

static void write_text(struct bytes *to, const char *name, const char *text, bool is_null)
{
    bytes_format(to, ",\"%s\":", name);
    if (is_null)
        bytes_text(to, "null");
    else
        bytes_json_string(to, text, strlen(text));
}

void fault_write_openai(const struct fault *f, struct bytes *to)
{
    bytes_text(to, "{\"error\":{\"message\":");
    bytes_json_string(to, f->message, strlen(f->message));
    write_text(to, "type", f->type, false);
    write_text(to, "param", f->param, f->param[0] == '\0');
    write_text(to, "code", f->code, f->code == NULL);
    bytes_text(to, "}}");
}
