/* gateway/api/openai_fields.c - the table of OpenAI's request fields. A field that is not in the table goes to the
 * backend under its name: the backend knows its own fields and refuses all others by name. */
#include "base/json.h"
#include "base/log.h"
#include "gateway/api/chat_parts.h"
#include "gateway/api/openai_parts.h"

#include <stdio.h>
#include <string.h>

enum how {
    MEANINGLESS, /* sent by common clients, without effect here: dropped */
    IF_EMPTY,    /* an empty list, object or text is dropped; the rest is for the backend */
    OURS,        /* read below */
    FORBIDDEN    /* reserved by the protocol, not for clients */
};

static const struct {
    const char *name;
    enum how how;
} fields[] = {
    {"user", MEANINGLESS},
    {"metadata", MEANINGLESS},
    {"store", MEANINGLESS},
    {"service_tier", MEANINGLESS},
    {"safety_identifier", MEANINGLESS},
    {"prompt_cache_key", MEANINGLESS},
    {"prompt_cache_retention", MEANINGLESS},
    {"prompt_cache_options", MEANINGLESS},
    {"verbosity", MEANINGLESS},
    {"tools", IF_EMPTY},
    {"functions", IF_EMPTY},
    {"stop", IF_EMPTY},
    {"logit_bias", IF_EMPTY},
    {"suffix", IF_EMPTY},
    {"response_format", OURS},
    {"modalities", OURS},
    {"parallel_tool_calls", OURS},
    {"tool_choice", OURS},
    {"function_call", OURS},
    {"stream", OURS},
    {"stream_options", OURS},
    {"model", OURS},
    {"echo", OURS},
    {"max_completion_tokens", OURS},
    {"messages", OURS},
    {"reasoning_effort", OURS},
    {"return_tokens_as_token_ids", OURS},
    {"op", FORBIDDEN},
    {"protocol", FORBIDDEN},
    {"request_id", FORBIDDEN},
    {"rid", FORBIDDEN},
    {"inputs", FORBIDDEN},
    {"text", FORBIDDEN},
    {"text_input", FORBIDDEN},
    {"input_ids", FORBIDDEN},
    {"streaming", FORBIDDEN},
};

#define N_FIELDS (sizeof fields / sizeof fields[0])

static size_t find_field(const char *name)
{
    size_t i = 0;
    while (i < N_FIELDS && strcmp(fields[i].name, name) != 0)
        i++;
    return i;
}

static bool is_empty(const json_t *value)
{
    return (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static int wrong(struct fault *f, const char *name, const json_t *found, const char *expected)
{
    *f = fault_make(400, name, "%s: found %s, expected %s", name, json_type_name(found), expected);
    return -1;
}

static int read_bool(const json_t *body, const char *name, bool *to, struct fault *f)
{
    const json_t *value = json_object_get(body, name);
    if (value == NULL || json_is_null(value))
        return 0;
    *to = json_is_true(value);
    return json_is_boolean(value) ? 0 : wrong(f, name, value, "true or false");
}

static int read_stream_options(const json_t *body, struct openai_request *r, struct fault *f)
{
    json_t *options = json_object_get(body, "stream_options"), *value;
    const char *key;
    if (options == NULL || json_is_null(options))
        return 0;
    if (!json_is_object(options))
        return wrong(f, "stream_options", options, "an object");
    json_object_foreach(options, key, value)
    {
        bool asks = !json_is_null(value) && !json_is_false(value);
        if (strcmp(key, "include_usage") == 0 || strcmp(key, "continuous_usage_stats") == 0 ||
            strcmp(key, "include_obfuscation") == 0 || !asks)
            continue;
        char name[96];
        (void)snprintf(name, sizeof name, "stream_options.%.60s", key);
        *f = fault_make(400, name, "%s: not implemented", name);
        return -1;
    }
    int rc = read_bool(options, "include_usage", &r->include_usage, f);
    return rc == 0 ? read_bool(options, "continuous_usage_stats", &r->usage_so_far, f) : rc;
}

/* A text format is the default; the backend produces or refuses others. */
static bool is_plain_format(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return type != NULL && strcmp(type, "text") == 0 && json_object_size(value) == 1;
}

static bool is_text_alone(const json_t *value)
{
    const char *only = json_string_value(json_array_get(value, 0));
    return json_array_size(value) == 1 && only != NULL && strcmp(only, "text") == 0;
}

/* Does a choice of tools allow an answer without calls? */
static bool is_loose(const json_t *choice)
{
    const char *word = json_is_string(choice) ? json_string_value(choice) : "";
    return strcmp(word, "none") == 0 || strcmp(word, "auto") == 0;
}

/* Does a field that is read here also go to the backend? */
static bool passes(const json_t *body, const char *name, const json_t *value)
{
    bool tools = json_array_size(json_object_get(body, "tools")) > 0;
    if (strcmp(name, "response_format") == 0)
        return !is_plain_format(value);
    if (strcmp(name, "modalities") == 0)
        return !is_text_alone(value);
    if (strcmp(name, "parallel_tool_calls") == 0)
        return tools;
    if (strcmp(name, "tool_choice") == 0)
        return tools || (json_is_string(value) && !is_loose(value));
    if (strcmp(name, "function_call") == 0) /* the old name of tool_choice */
        return !is_loose(value);
    if (strcmp(name, "max_completion_tokens") == 0) /* some clients say the same twice */
        return !json_equal(value, json_object_get(body, "max_tokens"));
    return strcmp(name, "echo") == 0 || strcmp(name, "stream") == 0;
}

/* The model of this name. Text Generation Inference's documents and clients write "tgi" or "dummy" when they mean the
 * only one. */
static const char *resolve_model(const struct exchange *x, const char *name)
{
    bool any = strcmp(name, "tgi") == 0 || strcmp(name, "dummy") == 0;
    const char *only = any && !openai_serves(x, name) ? openai_only_model(x) : "";
    return only[0] != '\0' ? only : name;
}

static int read_model(struct exchange *x, const json_t *body, struct openai_request *r, struct fault *f)
{
    const json_t *model = json_object_get(body, "model");
    const char *name = json_is_string(model) ? resolve_model(x, json_string_value(model)) : openai_only_model(x);
    if (model != NULL && !json_is_null(model) && !json_is_string(model))
        return wrong(f, "model", model, "a string");
    if (strlen(name) >= sizeof r->model) {
        *f = fault_make(404, "model", "no model has a name of %zu bytes", strlen(name));
        f->code = "model_not_found";
        return -1;
    }
    memcpy(r->model, name, strlen(name) + 1);
    (void)snprintf(x->tally.model, sizeof x->tally.model, "%s", name);
    return 0;
}

/* A field of the backend's under any of its names, also among the parameters; NULL: it is not given. */
static const json_t *find_given(const json_t *body, const char *const *names)
{
    const json_t *places[] = {body, json_object_get(body, "parameters"), json_object_get(body, "sampling_params")};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (const char *const *name = names; *name != NULL; name++) {
            const json_t *value = json_object_get(places[i], *name);
            if (value != NULL && !json_is_null(value))
                return value;
        }
    return NULL;
}

/* Fields of the backend's that change how its answer is translated; the backend checks their values. */
static void read_prompt_wishes(const json_t *body, struct openai_request *r)
{
    static const char *const echo[] = {"echo", "return_full_text", NULL},
                             *const exclude[] = {"exclude_input_from_output", NULL},
                             *const ids[] = {"return_token_ids", NULL};
    r->echo = json_is_true(find_given(body, echo)) || json_is_false(find_given(body, exclude));
    r->ids = json_is_true(find_given(body, ids));
}

/* A boolean false asks for nothing. */
static bool is_asked(const json_t *body, const char *const *names)
{
    const json_t *value = find_given(body, names);
    return value != NULL && !json_is_false(value);
}

/* The ids and log-probabilities of a prompt are in answers in one piece only. */
static int check_stream(const json_t *body, const struct openai_request *r, struct fault *f)
{
    static const char *const scores[] = {"logprobs", "n_probs", "return_logprob", NULL}, *const of_prompt[] = {
                                                                                             "prompt_logprobs", NULL};
    if (!r->stream)
        return 0;
    if (r->echo && is_asked(body, scores))
        *f = fault_make(400, "echo", "echo: a stream has no logprobs of it, omit one of the three");
    else if (is_asked(body, of_prompt))
        *f = fault_make(400, "prompt_logprobs", "prompt_logprobs: a stream has none, omit one of the two");
    else if (r->ids)
        *f = fault_make(400, "return_token_ids", "return_token_ids: a stream has none, omit one of the two");
    return f->status == 0 ? 0 : -1;
}

static int read_ours(struct exchange *x, const json_t *body, struct openai_request *r, struct fault *f)
{
    if (read_model(x, body, r, f) != 0 || read_stream_options(body, r, f) != 0 ||
        read_bool(body, "stream", &r->stream, f) != 0 ||
        read_bool(body, "return_tokens_as_token_ids", &r->ids_as_tokens, f) != 0)
        return -1;
    read_prompt_wishes(body, r);
    if (check_stream(body, r, f) != 0)
        return -1;
    bool unused;
    if (r->chat && read_bool(body, "logprobs", &unused, f) != 0)
        return -1;
    return 0;
}

/* Fields that differ from the backend's. */
static void add_ours(json_t *message, const json_t *body)
{
    const json_t *messages = json_object_get(body, "messages"), *effort = json_object_get(body, "reasoning_effort");
    if (messages != NULL && !json_is_null(messages))
        (void)json_object_set_new(message, "messages", openai_messages(messages));
    /* Tools may be called unless the client forbids it; the backend refuses tools where it cannot recognise calls. */
    if (json_object_get(message, "tools") != NULL && json_object_get(message, "tool_choice") == NULL)
        (void)json_object_set_new(message, "tool_choice", json_string("auto"));
    if (effort != NULL && !json_is_null(effort))
        chat_set_variable(message, "reasoning_effort", json_incref((json_t *)effort));
}

json_t *openai_translate(struct exchange *x, const json_t *body, struct openai_request *r, struct fault *f)
{
    const char *key;
    json_t *value, *message = json_object();
    bool good = message != NULL && read_ours(x, body, r, f) == 0;
    json_object_foreach((json_t *)body, key, value)
    {
        size_t i = find_field(key);
        bool known = i < N_FIELDS;
        if (!good || json_is_null(value) || (known && fields[i].how == MEANINGLESS))
            continue;
        if (known && fields[i].how == FORBIDDEN) {
            *f = fault_make(400, key, "%s: unknown field", key);
            good = false;
        } else if (!known || (fields[i].how == IF_EMPTY && !is_empty(value)) ||
                   (fields[i].how == OURS && passes(body, key, value))) {
            good = json_object_set(message, key, value) == 0;
        }
    }
    if (good) {
        add_ours(message, body);
        return message;
    }
    json_decref(message);
    if (f->status == 0)
        *f = fault_make(500, "", "out of host memory: a request");
    return NULL;
}
