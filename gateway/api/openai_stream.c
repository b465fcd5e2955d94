/* gateway/api/openai_stream.c - answers as server-sent events. Chunks are written by hand: they are most of the
 * gateway's work. */
#include "base/json.h"
#include "gateway/api/openai_parts.h"

#include <stdlib.h>
#include <string.h>

/* Choice number i, which is created on its first appearance; NULL: invalid, or out of memory. */
static struct openai_choice *find_choice(struct openai_answer *a, const json_t *index)
{
    json_int_t i = json_is_integer(index) ? json_integer_value(index) : -1;
    if (i < 0 || i >= 1 << 16)
        return NULL;
    if ((size_t)i >= a->n_choices) {
        struct openai_choice *more = realloc(a->choice, ((size_t)i + 1) * sizeof *more);
        if (more == NULL)
            return NULL;
        memset(more + a->n_choices, 0, ((size_t)i + 1 - a->n_choices) * sizeof *more);
        a->choice = more;
        a->n_choices = (size_t)i + 1;
    }
    return &a->choice[i];
}

/* The beginning of every chunk of the answer, up to the choices. */
static struct bytes *begin_chunk(struct exchange *x, const struct openai_answer *a)
{
    struct bytes *b = exchange_open_event(x, NULL);
    bytes_text(b, "{\"id\":");
    bytes_json_string(b, a->id, strlen(a->id));
    bytes_format(b, ",\"object\":\"%s\",\"created\":%lld,\"model\":",
                 a->asked.chat ? "chat.completion.chunk" : "text_completion", (long long)x->created);
    bytes_json_string(b, a->asked.model, strlen(a->asked.model));
    bytes_format(b, ",\"system_fingerprint\":\"%s\",\"choices\":[", a->fingerprint);
    return b;
}

static void end_chunk(struct exchange *x, const struct openai_answer *a)
{
    struct bytes *b = &x->conn->out;
    long long prompt = a->prompt_tokens, completion = a->completion_tokens;
    if (a->asked.usage_so_far)
        bytes_format(b, "],\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld}}",
                     prompt, completion, prompt + completion);
    else
        bytes_text(b, a->asked.include_usage ? "],\"usage\":null}" : "]}");
    exchange_close_event(x);
}

static void write_json(struct bytes *b, const json_t *value)
{
    char *text = json_text(value, JSON_COMPACT);
    bytes_text(b, text != NULL ? text : "null");
    free(text);
}

static void write_logprobs(struct bytes *b, const struct openai_answer *a, const json_t *c, int64_t *offset)
{
    if (json_object_get(c, "logprobs") == NULL) {
        bytes_text(b, "null");
        return;
    }
    json_t *value = openai_logprobs(c, &a->asked, offset);
    write_json(b, value);
    json_decref(value);
}

/* The first chunk of a chat's choice: the role. */
static void write_role(struct exchange *x, const struct openai_answer *a, size_t index)
{
    struct bytes *b = begin_chunk(x, a);
    bytes_format(b,
                 "{\"index\":%zu,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                 "\"finish_reason\":null}",
                 index);
    end_chunk(x, a);
}

static void write_text(struct exchange *x, const struct openai_answer *a, size_t index, const json_t *c,
                       int64_t *offset)
{
    const json_t *text = json_object_get(c, "text");
    const char *bytes = json_is_string(text) ? json_string_value(text) : "";
    size_t n = json_is_string(text) ? json_string_length(text) : 0;
    struct bytes *b = begin_chunk(x, a);
    bytes_format(b, a->asked.chat ? "{\"index\":%zu,\"delta\":{\"content\":" : "{\"index\":%zu,\"text\":", index);
    bytes_json_string(b, bytes, n);
    bytes_text(b, a->asked.chat ? "},\"logprobs\":" : ",\"logprobs\":");
    write_logprobs(b, a, c, offset);
    bytes_text(b, ",\"finish_reason\":null}");
    end_chunk(x, a);
}

/* The parts into which the backend split the answer are passed on unchanged: content, reasoning, pieces of calls. */
static void write_delta(struct exchange *x, const struct openai_answer *a, size_t index, const json_t *c,
                        int64_t *offset)
{
    char *text = json_text(json_object_get(c, "delta"), JSON_COMPACT);
    struct bytes *b = begin_chunk(x, a);
    bytes_format(b, "{\"index\":%zu,\"delta\":", index);
    bytes_text(b, text != NULL ? text : "{}");
    bytes_text(b, ",\"logprobs\":");
    write_logprobs(b, a, c, offset);
    bytes_text(b, ",\"finish_reason\":null}");
    end_chunk(x, a);
    free(text);
}

/* error: of a choice that failed; NULL: it did not. */
static void write_finish(struct exchange *x, const struct openai_answer *a, size_t index, const char *why,
                         const json_t *error)
{
    struct bytes *b = begin_chunk(x, a);
    bytes_format(b,
                 a->asked.chat ? "{\"index\":%zu,\"delta\":{},\"logprobs\":null,\"finish_reason\":"
                               : "{\"index\":%zu,\"text\":\"\",\"logprobs\":null,\"finish_reason\":",
                 index);
    bytes_json_string(b, why, strlen(why));
    if (error != NULL) {
        bytes_text(b, ",\"error\":");
        write_json(b, error);
    }
    bytes_text(b, "}");
    end_chunk(x, a);
}

static void write_choice(struct exchange *x, struct openai_answer *a, const json_t *c)
{
    struct openai_choice *choice = find_choice(a, json_object_get(c, "index"));
    const char *finish = json_string_value(json_object_get(c, "finish_reason"));
    if (choice == NULL || choice->ended)
        return;
    size_t index = (size_t)(choice - a->choice);
    if (a->asked.chat && !choice->begun)
        write_role(x, a, index);
    choice->begun = true;
    a->completion_tokens += (int64_t)json_array_size(json_object_get(c, "token_ids"));
    const json_t *delta = json_object_get(c, "delta");
    if (json_is_object(delta) && (json_object_size(delta) > 0 || json_object_get(c, "logprobs") != NULL))
        write_delta(x, a, index, c, &choice->offset);
    else if (!json_is_object(delta) &&
             (json_string_length(json_object_get(c, "text")) > 0 || json_object_get(c, "logprobs") != NULL))
        write_text(x, a, index, c, &choice->offset);
    if (finish == NULL)
        return;
    choice->ended = true;
    write_finish(x, a, index, finish, json_object_get(c, "error"));
}

/* Also the outcome of drafts, if the server made any. */
static void write_usage(struct exchange *x, const struct openai_answer *a, const json_t *reply)
{
    json_t *usage = openai_usage(reply);
    const json_t *metrics = json_object_get(reply, "metrics");
    struct bytes *b = begin_chunk(x, a);
    bytes_text(b, "],\"usage\":");
    write_json(b, usage);
    if (metrics != NULL) {
        bytes_text(b, ",\"metrics\":");
        write_json(b, metrics);
    }
    bytes_text(b, "}");
    exchange_close_event(x);
    json_decref(usage);
}

void openai_stream_reply(struct exchange *x, void *context, json_t *reply, bool last)
{
    struct openai_answer *a = context;
    const json_t *c;
    size_t i;
    if (!exchange_is_good(reply)) {
        exchange_fail_reply(x, reply);
        return;
    }
    if (json_object_get(reply, "prompt_tokens") != NULL) /* the first event */
        a->prompt_tokens = json_integer_value(json_object_get(reply, "prompt_tokens"));
    json_array_foreach(json_object_get(reply, "choices"), i, c)
    {
        write_choice(x, a, c);
    }
    if (!last)
        return;
    if (a->asked.include_usage)
        write_usage(x, a, reply);
    exchange_end_events(x, "data: [DONE]\n\n");
}
