/* protocol/protocol_rules.c - the rules of a `generate`: sampling, ends, candidates, reported values. */
#include "protocol/protocol_parts.h"
#include "text/stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_TOKENS 16
#define MAX_STOP_IDS       (REQUEST_MAX_STOP_IDS - SAMPLING_MAX_EOS)

static void read_lengths(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    struct request_rules *r = &g->rules;
    bool chat = f->value[FIELD_MESSAGES] != NULL;
    (void)fields_name(f, FIELD_MAX_TOKENS, -1, g->limit_field);
    r->max_tokens = (int)fields_int(f, FIELD_MAX_TOKENS, chat ? PROTOCOL_FILL : DEFAULT_MAX_TOKENS, PROTOCOL_FILL,
                                    PROTOCOL_MAX_TOKENS, error);
    r->sampling.min_tokens =
        (int32_t)fields_int(f, FIELD_MIN_TOKENS, 0, 0, r->max_tokens >= 0 ? r->max_tokens : PROTOCOL_MAX_TOKENS, error);
}

/* do_sample false is another way to say temperature 0. Beams are not sampled. */
static double read_temperature(const struct fields *f, bool beams, struct protocol_error *error)
{
    bool said = f->value[FIELD_DO_SAMPLE] != NULL, sample = fields_bool(f, FIELD_DO_SAMPLE, true, error);
    double t = fields_real(f, FIELD_TEMPERATURE, beams || !sample ? 0 : 1, 0, 100, error);
    if (said && f->value[FIELD_TEMPERATURE] != NULL && sample != (t > 0))
        fields_fail(f, FIELD_DO_SAMPLE, -1, error, "found %s beside a temperature of %g", sample ? "true" : "false", t);
    if (beams && (t > 0 || (said && sample)))
        fields_fail(f, t > 0 ? FIELD_TEMPERATURE : FIELD_DO_SAMPLE, -1, error,
                    "beams are not sampled: only temperature 0 is implemented with them");
    return t;
}

static void read_sampling(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    struct sampling *s = &g->rules.sampling;
    s->temperature = (float)read_temperature(f, g->search.num_beams > 1, error);
    s->top_p = (float)fields_real(f, FIELD_TOP_P, 1, 0, 1, error);
    s->min_p = (float)fields_real(f, FIELD_MIN_P, 0, 0, 1, error);
    s->top_k = (int32_t)fields_int(f, FIELD_TOP_K, 0, -1, 1 << 24, error);
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    s->repetition_penalty = (float)fields_real(f, FIELD_REPETITION_PENALTY, 1, 0.01, 100, error);
    s->presence_penalty = (float)fields_real(f, FIELD_PRESENCE_PENALTY, 0, -2, 2, error);
    s->frequency_penalty = (float)fields_real(f, FIELD_FREQUENCY_PENALTY, 0, -2, 2, error);
    int64_t seed = fields_int(f, FIELD_SEED, -1, -1, INT64_MAX, error);
    g->has_seed = seed >= 0;
    s->seed = seed >= 0 ? (uint64_t)seed : 0;
}

static int add_bias(struct sampling *s, const struct fields *f, int vocab, int64_t id, const json_t *bias,
                    struct protocol_error *error)
{
    double x = json_number_value(bias);
    if (id < 0 || id >= vocab)
        return fields_fail(f, FIELD_LOGIT_BIAS, -1, error, "found id %lld, expected a token id in [0, %d]",
                           (long long)id, vocab - 1);
    if (!json_is_number(bias) || !(x >= -100 && x <= 100))
        return json_is_number(bias)
                   ? fields_fail(f, FIELD_LOGIT_BIAS, -1, error,
                                 "found %g for id %lld, expected a number in [-100, 100]", x, (long long)id)
                   : fields_fail(f, FIELD_LOGIT_BIAS, -1, error,
                                 "found %s for id %lld, expected a number in [-100, 100]", json_type_name(bias),
                                 (long long)id);
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias_id[i] == id)
            return fields_fail(f, FIELD_LOGIT_BIAS, -1, error, "found id %lld twice", (long long)id);
    s->bias_id[s->n_bias] = (int32_t)id;
    s->bias[s->n_bias++] = (float)x;
    return 0;
}

/* Accepts digits only; -1 for anything else. */
static int64_t parse_key(const char *key)
{
    char *end = NULL;
    if (key[0] == '\0' || strspn(key, "0123456789") != strlen(key))
        return -1;
    errno = 0;
    long long n = strtoll(key, &end, 10);
    return errno == 0 ? n : INT64_MAX;
}

static int read_bias_object(struct sampling *s, const struct fields *f, int vocab, struct protocol_error *error)
{
    const char *key;
    json_t *bias, *object = (json_t *)f->value[FIELD_LOGIT_BIAS];
    json_object_foreach(object, key, bias)
    {
        int64_t id = parse_key(key);
        if (id < 0)
            return fields_fail(f, FIELD_LOGIT_BIAS, -1, error, "found key \"%.40s\", expected a token id", key);
        if (add_bias(s, f, vocab, id, bias, error) != 0)
            return -1;
    }
    return 0;
}

static int read_bias(struct sampling *s, const struct fields *f, int vocab, struct protocol_error *error)
{
    const json_t *value = f->value[FIELD_LOGIT_BIAS], *pair;
    size_t i, n = json_is_object(value) ? json_object_size(value) : json_array_size(value);
    if (value == NULL)
        return 0;
    if (n > SAMPLING_MAX_BIAS)
        return fields_fail(f, FIELD_LOGIT_BIAS, -1, error, "found %zu entries, at most %d are accepted", n,
                           SAMPLING_MAX_BIAS);
    if (json_is_object(value))
        return read_bias_object(s, f, vocab, error);
    if (!json_is_array(value))
        return fields_fail(f, FIELD_LOGIT_BIAS, -1, error, "found %s, expected {\"ID\": BIAS} or [[ID, BIAS]]",
                           json_type_name(value));
    json_array_foreach(value, i, pair)
    {
        if (json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 0)))
            return fields_fail(f, FIELD_LOGIT_BIAS, (long)i, error, "expected [ID, BIAS]");
        if (add_bias(s, f, vocab, json_integer_value(json_array_get(pair, 0)), json_array_get(pair, 1), error) != 0)
            return -1;
    }
    return 0;
}

static int read_stop_texts(struct protocol_message *m, const struct fields *f, struct protocol_error *error)
{
    const json_t *value = f->value[FIELD_STOP];
    size_t n = json_is_array(value) ? json_array_size(value) : value != NULL;
    const char *stop[STOP_MAX_STRINGS];
    struct err e = {0};
    if (n > STOP_MAX_STRINGS)
        return fields_fail(f, FIELD_STOP, -1, error, "found %zu texts, at most %d are accepted", n, STOP_MAX_STRINGS);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(value) ? json_array_get(value, i) : value;
        long item = json_is_array(value) ? (long)i : -1;
        if (!json_is_string(text))
            return fields_fail(f, FIELD_STOP, item, error, "found %s, expected a string%s", json_type_name(text),
                               item < 0 ? " or a list of strings" : "");
        if (json_string_length(text) == 0 || strlen(json_string_value(text)) != json_string_length(text))
            return fields_fail(f, FIELD_STOP, item, error, "found %s, expected text without NUL",
                               json_string_length(text) == 0 ? "an empty string" : "a NUL character");
        if (json_string_length(text) > STOP_MAX_BYTES)
            return fields_fail(f, FIELD_STOP, item, error, "found %zu bytes, expected at most %d",
                               json_string_length(text), STOP_MAX_BYTES);
        stop[i] = json_string_value(text);
    }
    m->stop = n > 0 ? stop_open((int)n, stop, &e) : NULL;
    m->generate.rules.stop = m->stop;
    return e.code == ERR_NONE ? 0 : protocol_fail(error, PROTOCOL_INTERNAL, "", "%s", e.text);
}

static int set_eos(struct sampling *s, const struct fields *f, const struct protocol_model *model,
                   struct protocol_error *error)
{
    struct token_list ids = {0};
    int rc = fields_ids(f, FIELD_EOS_TOKEN_ID, true, SAMPLING_MAX_EOS, model->vocab, &ids, error);
    bool given = f->value[FIELD_EOS_TOKEN_ID] != NULL;
    s->n_eos = given ? (int)ids.n : model->n_eos;
    if (rc == 0 && s->n_eos > 0)
        memcpy(s->eos, given ? ids.id : model->eos, (size_t)s->n_eos * sizeof *s->eos);
    token_list_free(&ids);
    return rc;
}

/* The texts and ids that end a sequence. */
static int read_ends(struct protocol_message *m, const struct fields *f, const struct protocol_model *model,
                     struct protocol_error *error)
{
    struct request_rules *r = &m->generate.rules;
    struct token_list ids = {0};
    r->ignore_eos = fields_bool(f, FIELD_IGNORE_EOS, false, error);
    r->keep_stop = fields_bool(f, FIELD_KEEP_STOP, false, error);
    if (read_stop_texts(m, f, error) != 0 || set_eos(&r->sampling, f, model, error) != 0)
        return -1;
    int rc = fields_ids(f, FIELD_STOP_TOKEN_IDS, false, MAX_STOP_IDS, model->vocab, &ids, error);
    if (rc == 0 && request_rules_stop(r, ids.id, (int)ids.n) != 0)
        rc = fields_fail(f, FIELD_STOP_TOKEN_IDS, -1, error,
                         "found %zu ids beside %d that end a text, with min_tokens at most %d together", ids.n,
                         r->sampling.n_eos, SAMPLING_MAX_EOS);
    token_list_free(&ids);
    return rc;
}

static void read_early_stopping(struct search *s, const struct fields *f, struct protocol_error *error)
{
    const json_t *value = f->value[FIELD_EARLY_STOPPING];
    if (json_is_string(value) && strcmp(json_string_value(value), "never") == 0)
        s->beam.early_stopping = EARLY_STOPPING_NEVER;
    else if (json_is_boolean(value))
        s->beam.early_stopping = json_is_true(value) ? EARLY_STOPPING_TRUE : EARLY_STOPPING_FALSE;
    else if (value != NULL)
        fields_fail(f, FIELD_EARLY_STOPPING, -1, error, "found %s, expected true, false or \"never\"",
                    json_type_name(value));
}

/* Fields that have no effect without another field are refused. */
static void check_beams(const struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    static const enum field_id of_beams[] = {FIELD_LENGTH_PENALTY, FIELD_EARLY_STOPPING};
    const struct search *s = &g->search;
    for (int i = 0; i < 2 && s->num_beams == 1; i++)
        if (f->value[of_beams[i]] != NULL)
            fields_fail(f, of_beams[i], -1, error, "has no effect without \"num_beams\" above 1");
    if (s->num_beams > 1 && f->value[FIELD_BEST_OF] != NULL && f->value[FIELD_USE_BEAM_SEARCH] == NULL)
        fields_fail(f, FIELD_BEST_OF, -1, error, "not implemented with beams: \"num_beams\" are ranked anyway");
}

/* `use_beam_search` (vLLM, TensorRT-LLM): as many beams as candidates. */
static int read_beam_width(const struct fields *f, int n, int best_of, struct protocol_error *error)
{
    int width = (int)fields_int(f, FIELD_NUM_BEAMS, 1, 1, BEAM_MAX, error), implied = best_of > n ? best_of : n;
    if (!fields_bool(f, FIELD_USE_BEAM_SEARCH, false, error)) {
        if (width > 1 && f->value[FIELD_USE_BEAM_SEARCH] != NULL)
            fields_fail(f, FIELD_USE_BEAM_SEARCH, -1, error, "found false beside %d beams", width);
        return width;
    }
    if (f->value[FIELD_NUM_BEAMS] != NULL)
        return width;
    if (implied < 2 || implied > BEAM_MAX)
        fields_fail(f, FIELD_USE_BEAM_SEARCH, -1, error, "found true, expected with it \"n\" or \"best_of\" in [2, %d]",
                    BEAM_MAX);
    return implied;
}

static void read_search(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    struct search *s = &g->search;
    s->n = (int)fields_int(f, FIELD_N, 1, 1, RULES_MAX_CHOICES, error);
    s->best_of = (int)fields_int(f, FIELD_BEST_OF, 0, s->n, RULES_MAX_CHOICES, error);
    s->num_beams = read_beam_width(f, s->n, s->best_of, error);
    s->beam.length_penalty = fields_real(f, FIELD_LENGTH_PENALTY, 1, -10, 10, error);
    read_early_stopping(s, f, error);
    check_beams(g, f, error);
    if (s->num_beams > 1)
        s->best_of = 0;
}

/* `logprobs`: a number of alternatives, or true with `top_logprobs`. */
static void read_logprobs(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    const json_t *value = f->value[FIELD_LOGPROBS];
    struct request_rules *r = &g->rules;
    int top = (int)fields_int(f, FIELD_TOP_LOGPROBS, 0, 0, SAMPLING_MAX_TOP, error);
    if (json_is_boolean(value)) {
        r->want_logprobs = json_is_true(value);
    } else if (value != NULL) {
        r->want_logprobs = true;
        r->sampling.n_top = (int32_t)fields_int(f, FIELD_LOGPROBS, 0, 0, SAMPLING_MAX_TOP, error);
    }
    if (top > 0 && !(json_is_boolean(value) && json_is_true(value)))
        fields_fail(f, FIELD_TOP_LOGPROBS, -1, error, "has no effect without \"logprobs\": true");
    if (json_is_boolean(value))
        r->sampling.n_top = top;
    int of_prompt = g->echo && r->want_logprobs ? r->sampling.n_top : -1;
    of_prompt = (int)fields_int(f, FIELD_PROMPT_LOGPROBS, of_prompt, 0, SAMPLING_MAX_TOP, error);
    r->want_prompt_logprobs = of_prompt >= 0;
    r->sampling.n_prompt_top = of_prompt >= 0 ? of_prompt : 0;
}

static void read_echo(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    bool exclude = fields_bool(f, FIELD_EXCLUDE_INPUT, true, error);
    g->echo = fields_bool(f, FIELD_ECHO, !exclude, error);
    if (f->value[FIELD_ECHO] != NULL && f->value[FIELD_EXCLUDE_INPUT] != NULL && g->echo == exclude)
        fields_fail(f, FIELD_EXCLUDE_INPUT, -1, error, "contradicts \"%s\"", f->name[FIELD_ECHO]);
    if (g->echo && f->value[FIELD_MESSAGES] != NULL)
        fields_fail(f, f->value[FIELD_ECHO] != NULL ? FIELD_ECHO : FIELD_EXCLUDE_INPUT, -1, error,
                    "not implemented for chats");
}

static void read_stream(struct protocol_generate *g, const struct fields *f, bool may_stream,
                        struct protocol_error *error)
{
    g->stream = fields_bool(f, FIELD_STREAM, false, error);
    if (g->stream && !may_stream)
        fields_fail(f, FIELD_STREAM, -1, error,
                    "a message behind an empty frame gets one reply: stream to a DEALER that sends [json] alone");
    if (g->stream && (g->search.num_beams > 1 || g->search.best_of > g->search.n))
        fields_fail(f, FIELD_STREAM, -1, error,
                    "not implemented with best_of above n or beams: the best are known last");
}

/* max_tokens 0: the prompt alone is echoed or scored. A token is generated all the same, and not reported. */
static void read_prompt_alone(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    if (g->rules.max_tokens != 0)
        return;
    if (!g->echo && !g->rules.want_prompt_logprobs)
        fields_fail(f, FIELD_MAX_TOKENS, -1, error,
                    "found 0, expected -1 (as many as fit) or at least 1, or \"echo\" or \"prompt_logprobs\" with it");
    if (g->stream || g->search.num_beams > 1)
        fields_fail(f, FIELD_MAX_TOKENS, -1, error, "found 0, expected at least 1 with %s",
                    g->stream ? "\"stream\"" : "beams");
    g->prompt_alone = true;
    g->rules.max_tokens = 1;
}

/* Checks the rules of the search, and reports the name that the client used. */
static int check_search(const struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    struct err e = {0};
    const char *field = "";
    if (error->code != 0 || search_check(&g->search, &g->rules, &field, &e) == 0)
        return error->code == 0 ? 0 : -1;
    enum field_id id = fields_find(field);
    return fields_fail(f, id, -1, error, "%s", e.text);
}

int protocol_read_rules(struct protocol_message *m, const struct fields *f, const struct protocol_model *model,
                        bool may_stream, struct protocol_error *error)
{
    struct protocol_generate *g = &m->generate;
    read_lengths(g, f, error);
    read_search(g, f, error);
    read_sampling(g, f, error);
    (void)read_bias(&g->rules.sampling, f, model->vocab, error);
    if (read_ends(m, f, model, error) != 0)
        return -1;
    read_echo(g, f, error);
    read_logprobs(g, f, error);
    read_stream(g, f, may_stream, error);
    read_prompt_alone(g, f, error);
    g->return_ids = fields_bool(f, FIELD_RETURN_TOKEN_IDS, false, error);
    g->rules.skip_special = fields_bool(f, FIELD_SKIP_SPECIAL_TOKENS, true, error);
    g->priority = (int)fields_int(f, FIELD_PRIORITY, 0, INT32_MIN, INT32_MAX, error);
    protocol_read_form(m, f, error);
    g->timeout_ms = fields_int(f, FIELD_TIMEOUT_MS, 0, 1, INT32_MAX, error);
    return check_search(g, f, error);
}
