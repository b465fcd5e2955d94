/* coordinator/batch/result.c - see result.h. Every line begins with its id, so that a resumed run finds the ids without
 * parsing the texts. */
#include "coordinator/batch/result.h"
#include "coordinator/tasks/finished.h"
#include "protocol/reply_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static json_t *id_of(const struct line *l)
{
    return l->id_is_number ? json_integer(strtoll(l->id, NULL, 10)) : reply_text(l->id);
}

/* "prompts.jsonl: line 3: top_p: found 7, expected ..." */
static json_t *say_error(const struct line *l, const char *file_name)
{
    const struct protocol_error *error = &l->task->error;
    char text[sizeof error->message + sizeof error->field + 400];
    (void)snprintf(text, sizeof text, "%.300s: line %lld: %s%s%s", file_name, (long long)l->number, error->field,
                   error->field[0] != '\0' ? ": " : "", error->message);
    return reply_text(text);
}

static json_t *error_of(const struct line *l, const char *file_name, bool *good)
{
    const struct protocol_error *error = &l->task->error;
    json_t *object = json_object();
    reply_put(object, "code", json_integer(error->code), good);
    reply_put(object, "message", say_error(l, file_name), good);
    reply_put(object, "param", error->field[0] != '\0' ? reply_text(error->field) : json_null(), good);
    reply_put(object, "line", json_integer(l->number), good);
    return object;
}

/* {"id": "batch_req_..", "custom_id", "response": {"status_code", "request_id", "body"}, "error"} */
static json_t *openai_line(const struct line *l, const char *file_name, const struct reply *r, bool *good)
{
    char name[64];
    unsigned long long hash = line_hash(0, l->id);
    bool failed = l->task->error.code != 0;
    json_t *root = json_object(), *response = json_object();
    (void)snprintf(name, sizeof name, "batch_req_%016llx", hash);
    reply_put(root, "id", json_string(name), good);
    reply_put(root, "custom_id", id_of(l), good);
    reply_put(response, "status_code", json_integer(failed ? l->task->error.code : PROTOCOL_OK), good);
    (void)snprintf(name, sizeof name, "req_%016llx", hash);
    reply_put(response, "request_id", json_string(name), good);
    (void)snprintf(name, sizeof name, "%s-%016llx", l->chat ? "chatcmpl" : "cmpl", hash);
    json_t *body = failed ? json_null() : reply_openai_body(r, l->chat, name, (int64_t)time(NULL), good);
    reply_put(response, "body", body, good);
    reply_put(root, "response", response, good);
    reply_put(root, "error", failed ? error_of(l, file_name, good) : json_null(), good);
    return root;
}

static void put_plain_choice(json_t *object, const struct reply *r, const struct reply_choice *c, bool *good)
{
    reply_put(object, "text", reply_string(c->text, c->bytes), good);
    if (c->said != NULL)
        reply_put(object, "message", json_incref(c->said), good);
    reply_put(object, "finish_reason", reply_finish(c), good);
    reply_put_failure(object, c, good);
    if (c->logprobs != NULL)
        reply_put(object, "logprobs", reply_logprobs(r->tokenizer, c->logprobs, c->n_tokens, c->n_top, false, good),
                  good);
    if (r->ids)
        reply_put(object, "token_ids", reply_ids(c->token_id, c->n_tokens, good), good);
    reply_put_prompt(object, r, c, good);
}

/* {"id", "text", "finish_reason", ..}, or {"id", "choices": [..], ..} for several choices */
static json_t *plain_line(const struct line *l, const char *file_name, const struct reply *r, bool *good)
{
    json_t *root = json_object(), *list = r->n_choices > 1 ? json_array() : NULL;
    reply_put(root, "id", id_of(l), good);
    if (l->task->error.code != 0) {
        reply_put(root, "error", error_of(l, file_name, good), good);
        return root;
    }
    for (int i = 0; i < r->n_choices; i++) {
        json_t *object = list != NULL ? json_object() : root;
        put_plain_choice(object, r, &r->choice[i], good);
        if (list != NULL)
            reply_append(list, object, good);
    }
    if (list != NULL)
        reply_put(root, "choices", list, good);
    reply_put(root, "prompt_tokens", json_integer(r->usage->prompt_tokens), good);
    reply_put(root, "completion_tokens", json_integer(r->usage->completion_tokens), good);
    reply_put(root, "total_ms", reply_milliseconds(r->timing->total), good);
    return root;
}

char *result_line(const struct line *l, const char *file_name, const struct result_style *s, double now, size_t *bytes,
                  struct result_count *count)
{
    const struct task *task = l->task;
    struct finished f;
    bool good = true;
    finished_measure(&f, task, now);
    *count = (struct result_count){f.usage.prompt_tokens, f.usage.cached_tokens, f.usage.completion_tokens};
    if (task->error.code == 0)
        good = finished_choices(&f, task, s->tokenizer) == 0;
    const struct reply r = {.model = s->model,
                            .tokenizer = s->tokenizer,
                            .n_choices = f.n_choices,
                            .choice = f.choice,
                            .usage = &f.usage,
                            .timing = &f.timing,
                            .drafts = &f.drafts,
                            .seed = task->seed,
                            .predicted = task->message.generate.prediction != NULL,
                            .echo = task->message.generate.echo,
                            .ids = task->message.generate.return_ids};
    json_t *root = s->plain ? plain_line(l, file_name, &r, &good) : openai_line(l, file_name, &r, &good);
    char *text = reply_dump(root, good, bytes);
    finished_close(&f);
    if (text != NULL)
        text[(*bytes)++] = '\n'; /* in place of the NUL */
    return text;
}

/* The position after the text, if the text is here. */
static const char *after(const char *at, const char *end, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(end - at) >= n && memcmp(at, text, n) == 0 ? at + n : NULL;
}

/* The end of the JSON string or number that begins here; NULL: there is none before `end`. */
static const char *value_end(const char *at, const char *end)
{
    if (at == end || *at != '"') {
        while (at < end && *at != ',')
            at++;
        return at;
    }
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\';
    return at < end ? at + 1 : NULL;
}

/* A JSON string or integer as an id. */
static bool read_id(const char *text, size_t bytes, char id[LINE_MAX_ID_BYTES + 1])
{
    json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    int n = json_is_integer(value)
                ? snprintf(id, LINE_MAX_ID_BYTES + 1, "%lld", (long long)json_integer_value(value))
                : snprintf(id, LINE_MAX_ID_BYTES + 1, "%s", json_is_string(value) ? json_string_value(value) : "");
    json_decref(value);
    return n > 0 && n <= LINE_MAX_ID_BYTES;
}

/* JSON has none outside of escapes, but where a file has holes there are zeros. */
static bool has_controls(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)line[i] < 0x20)
            return true;
    return false;
}

bool result_read(const char *line, size_t bytes, char id[LINE_MAX_ID_BYTES + 1], bool *failed)
{
    const char *end = line + bytes, *at = after(line, end, RESULT_BEGIN),
               *stop = at != NULL ? value_end(at, end) : NULL;
    const char *custom = stop != NULL ? after(stop, end, ",\"custom_id\":") : NULL;
    if (custom != NULL) {
        at = custom;
        stop = value_end(at, end);
    }
    if (stop == NULL || end[-1] != '}' || has_controls(line, bytes) || !read_id(at, (size_t)(stop - at), id))
        return false;
    if (custom == NULL) {
        *failed = after(stop, end, ",\"error\":") != NULL;
        return *failed || after(stop, end, ",\"text\":") != NULL || after(stop, end, ",\"choices\":") != NULL;
    }
    const char *response = after(stop, end, ",\"response\":{\"status_code\":");
    *failed = response != NULL && after(response, end, "200,") == NULL;
    return response != NULL;
}
