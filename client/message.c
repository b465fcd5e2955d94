/* client/message.c - see message.h. */
#include "client/message.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

bool message_is_event(const json_t *reply)
{
    return strcmp(text_of(reply, "event"), "tokens") == 0;
}

bool message_is_to(const json_t *reply, const char *request_id)
{
    const char *name = json_string_value(json_object_get(reply, "request_id"));
    return name == NULL || strcmp(name, request_id) == 0;
}

bool message_failed(const json_t *reply)
{
    return strcmp(text_of(reply, "status"), "ok") != 0;
}

/* The first choice that failed among others that did not. */
static int check_choices(const json_t *reply, struct err *e)
{
    const json_t *choice;
    size_t i;
    json_array_foreach(json_object_get(reply, "choices"), i, choice)
    {
        const json_t *error = json_object_get(choice, "error");
        if (json_is_object(error))
            return ERR(e, ERR_REQUEST, "choice %zu: error %lld: %.300s", i,
                       (long long)json_integer_value(json_object_get(error, "code")), text_of(error, "message"));
    }
    return 0;
}

int message_check(const json_t *reply, struct err *e)
{
    if (!message_failed(reply))
        return check_choices(reply, e);
    const json_t *error = json_object_get(reply, "error");
    const char *field = text_of(error, "field"), *message = text_of(error, "message");
    const json_t *wait = json_object_get(reply, "retry_after_ms");
    char retry[64] = "";
    if (json_is_integer(wait))
        (void)snprintf(retry, sizeof retry, " (try again in %lld ms)", (long long)json_integer_value(wait));
    return ERR(e, ERR_REQUEST, "error %lld: %.100s%s%.300s%s",
               (long long)json_integer_value(json_object_get(reply, "code")), field, *field != '\0' ? ": " : "",
               *message != '\0' ? message : "the server gives no reason", retry);
}

size_t message_n_choices(const json_t *reply)
{
    return json_array_size(json_object_get(reply, "choices"));
}

void message_write_text(const json_t *reply, size_t i, FILE *f)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), i);
    const json_t *message = json_object_get(choice, "message"), *delta = json_object_get(choice, "delta");
    const json_t *said = message != NULL ? message : delta; /* without thoughts and calls */
    const json_t *text = said != NULL ? json_object_get(said, "content") : json_object_get(choice, "text");
    if (json_is_string(text))
        (void)fwrite(json_string_value(text), 1, json_string_length(text), f);
}

int64_t message_n_tokens(const json_t *reply)
{
    const json_t *choices = json_object_get(reply, "choices");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(choices); i++)
        n += json_array_size(json_object_get(json_array_get(choices, i), "token_ids"));
    return (int64_t)n;
}

int64_t message_usage(const json_t *reply, const char *name)
{
    const json_t *value = json_object_get(json_object_get(reply, "usage"), name);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

void message_print(const json_t *reply, FILE *f)
{
    (void)json_print(reply, f, JSON_COMPACT);
    (void)fputc('\n', f);
    (void)fflush(f);
}
