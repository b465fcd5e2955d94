/* coordinator/batch/line.c - see line.h. */
#include "coordinator/batch/line.h"
#include "base/json.h"
#include "base/utf8.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_openai(const json_t *object)
{
    return json_object_get(object, "body") != NULL || json_object_get(object, "custom_id") != NULL ||
           json_object_get(object, "url") != NULL || json_object_get(object, "method") != NULL;
}

/* The line's own id, if it has one. */
static void take_id(struct line *l, const json_t *object, const char *key, struct protocol_error *error)
{
    const json_t *id = json_object_get(object, key);
    const char *text = json_string_value(id);
    char number[32];
    if (id == NULL || json_is_null(id)) {
        l->nameless = true;
        return;
    }
    if (json_is_integer(id)) {
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(id));
        text = number;
    }
    if (text == NULL || *text == '\0' || strlen(text) > LINE_MAX_ID_BYTES ||
        (json_is_string(id) && strlen(text) != json_string_length(id))) {
        char found[48];
        (void)snprintf(found, sizeof found, "a string of %zu bytes", json_string_length(id));
        (void)protocol_fail(error, PROTOCOL_BAD_REQUEST, key,
                            "found %s, expected a string of 1 to %d bytes without NUL, or an integer",
                            json_is_string(id) ? found : json_type_name(id), LINE_MAX_ID_BYTES);
        return;
    }
    char *own = strdup(text);
    if (own == NULL) {
        (void)protocol_fail(error, PROTOCOL_INTERNAL, key, "out of host memory");
        return;
    }
    free(l->id);
    l->id = own;
    l->id_is_number = json_is_integer(id);
}

/* The API of the line: chat or completion. */
static int check_url(struct line *l, const json_t *object, struct protocol_error *error)
{
    const json_t *url = json_object_get(object, "url"), *method = json_object_get(object, "method");
    const char *text = json_string_value(url);
    if (method != NULL && (!json_is_string(method) || strcmp(json_string_value(method), "POST") != 0))
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, "method", "found %s%.40s%s, expected \"POST\"",
                             json_is_string(method) ? "\"" : "",
                             json_is_string(method) ? json_string_value(method) : json_type_name(method),
                             json_is_string(method) ? "\"" : "");
    l->chat = text != NULL && strcmp(text, "/v1/chat/completions") == 0;
    if (!l->chat && (text == NULL || strcmp(text, "/v1/completions") != 0))
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, "url",
                             "found %s%.60s%s, expected \"/v1/completions\" or \"/v1/chat/completions\"",
                             text != NULL ? "\"" : "", text != NULL ? text : json_type_name(url),
                             text != NULL ? "\"" : "");
    return 0;
}

/* Checks that the object has only the four members and a body that fits the url. Returns the body, borrowed, or NULL
 * and *error. */
static json_t *find_body(struct line *l, json_t *object, struct protocol_error *error)
{
    static const char *const known[] = {"custom_id", "method", "url", "body"};
    json_t *body = json_object_get(object, "body"), *value;
    const char *key, *wanted;
    json_object_foreach(object, key, value)
    {
        size_t k = 0;
        while (k < 4 && strcmp(known[k], key) != 0)
            k++;
        if (k == 4) {
            (void)protocol_fail(error, PROTOCOL_BAD_REQUEST, key,
                                "unknown beside \"custom_id\", \"method\", \"url\" and \"body\"");
            return NULL;
        }
    }
    if (check_url(l, object, error) != 0)
        return NULL;
    if (!json_is_object(body)) {
        (void)protocol_fail(error, PROTOCOL_BAD_REQUEST, "body", "found %s, expected an object", json_type_name(body));
        return NULL;
    }
    wanted = l->chat ? "messages" : "prompt";
    if (json_object_get(body, wanted) == NULL && json_object_get(body, l->chat ? "prompt" : "messages") != NULL) {
        (void)protocol_fail(error, PROTOCOL_BAD_REQUEST, "url", "expected \"%s\" in the body", wanted);
        return NULL;
    }
    return body;
}

void line_name_field(struct line *l)
{
    struct protocol_error *error = &l->task->error;
    char field[sizeof error->field];
    if (!l->in_body || error->code == 0 || error->field[0] == '\0')
        return;
    (void)snprintf(field, sizeof field, "body.%.58s", error->field);
    memcpy(error->field, field, sizeof field);
}

/* The request within the line, whose id is set; borrowed. NULL: task->error has the reason. */
static json_t *find_request(struct line *l, json_t *object)
{
    struct protocol_error *error = &l->task->error;
    if (!is_openai(object)) {
        take_id(l, object, "id", error);
        (void)json_object_del(object, "id");
        return error->code == 0 ? object : NULL;
    }
    take_id(l, object, "custom_id", error);
    json_t *body = error->code == 0 ? find_body(l, object, error) : NULL;
    l->in_body = body != NULL;
    return body;
}

/* The model's name, and the text for later. */
static void put_off(struct line *l, const json_t *request, const char *text)
{
    struct protocol_error *error = &l->task->error;
    const json_t *name = json_object_get(request, "model");
    if (name != NULL && !json_is_null(name) && !json_is_string(name)) {
        (void)protocol_fail(error, PROTOCOL_BAD_REQUEST, "model", "found %s, expected a string", json_type_name(name));
        return;
    }
    if (json_is_string(name) && strlen(json_string_value(name)) != json_string_length(name)) {
        (void)protocol_fail(error, PROTOCOL_BAD_REQUEST, "model", "found a name with NUL in it, expected one without");
        return;
    }
    l->model_name = json_is_string(name) ? strdup(json_string_value(name)) : NULL;
    l->text = malloc(l->bytes);
    if (l->text == NULL || (json_is_string(name) && l->model_name == NULL))
        (void)protocol_fail(error, PROTOCOL_INTERNAL, "", "out of host memory");
    else
        memcpy(l->text, text, l->bytes);
}

static void parse_line(struct line *l, const char *text, const struct line_rules *rules)
{
    struct task *task = l->task;
    json_t *object = protocol_json(text, l->bytes, "text", &task->error);
    json_t *request = object != NULL ? find_request(l, object) : NULL;
    if (request != NULL && rules->served == NULL)
        put_off(l, request, text);
    else if (request != NULL)
        (void)protocol_parse_generate(&task->message, request, rules->defaults, &rules->served->model, &task->error);
    if (!l->in_body)
        l->chat = task->message.generate.n_turns > 0;
    line_name_field(l);
    json_decref(object);
}

void line_check(struct line *l, const struct line_rules *rules)
{
    char *text = l->text;
    l->text = NULL;
    l->task->served = rules->served;
    parse_line(l, text, rules);
    free(text);
}

/* A very long name is shortened to its end, so that ids stay within their limit. Invalid UTF-8 is replaced, so that the
 * id is the same when it is read from a result. */
static char *made_id(const char *file_name, int64_t number)
{
    char text[LINE_MAX_ID_BYTES + 1];
    size_t n = strlen(file_name), most = LINE_MAX_ID_BYTES - 24;
    (void)snprintf(text, sizeof text, "%s:%lld", n > most ? file_name + n - most : file_name, (long long)number);
    n = strlen(text);
    for (size_t at = 0; (at += utf8_invalid_at(text + at, n - at)) < n;)
        text[at] = '?';
    return strdup(text);
}

struct line *line_open(const struct input_line *from, const char *file_name, const struct line_rules *rules,
                       uint64_t number, double now)
{
    struct line *l = calloc(1, sizeof *l);
    struct task *task = l != NULL ? task_open(number, NULL, false, now) : NULL;
    char *id = made_id(file_name, from->number);
    if (task == NULL || id == NULL) {
        task_close(task);
        free(id);
        free(l);
        return NULL;
    }
    *l = (struct line){
        .task = task, .file = from->file, .number = from->number, .end = from->end, .bytes = from->bytes, .id = id};
    task->owner = l;
    task->parsed = task->checked = true;
    task->served = rules->served;
    if (from->text != NULL)
        parse_line(l, from->text, rules);
    else
        (void)protocol_fail(&task->error, PROTOCOL_TOO_LARGE, "", "the line has more than %zu bytes",
                            INPUT_MAX_LINE_BYTES);
    return l;
}

void line_close(struct line *l)
{
    if (l == NULL)
        return;
    task_close(l->task);
    free(l->id);
    free(l->text);
    free(l->model_name);
    free(l);
}

uint64_t line_hash(uint64_t seed, const char *id)
{
    unsigned char key[sizeof seed], hash[crypto_generichash_BYTES];
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (unsigned char)(seed >> 8 * i);
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, NULL, 0, sizeof hash);
    (void)crypto_generichash_update(&state, key, sizeof key);
    (void)crypto_generichash_update(&state, (const unsigned char *)id, strlen(id));
    (void)crypto_generichash_final(&state, hash, sizeof hash);
    for (int i = 0; i < 8; i++)
        first = first << 8 | hash[i];
    return first;
}

uint64_t line_seed(uint64_t seed, const char *id)
{
    return line_hash(seed, id) >> 11;
}
