/* protocol/protocol_fields.c - see protocol_fields.h. The tables of names are the only place that knows them. */
#include "protocol/protocol_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OP(op) (1u << (op))
#define GEN    OP(PROTOCOL_GENERATE)
#define TOK    OP(PROTOCOL_TOKENIZE)
#define DETOK  OP(PROTOCOL_DETOKENIZE)
#define LOAD   OP(PROTOCOL_LOAD)
#define UNLOAD OP(PROTOCOL_UNLOAD)
#define PIN    OP(PROTOCOL_PIN)
#define ALL    (~0u)
#define TOP    false /* where a name may occur: only at the top of the message, */
#define NESTED true  /* or in `parameters` too */

/* The first row of a field has its canonical name, the others are aliases. */
static const struct field_row {
    const char *name;
    enum field_id id;
    unsigned ops;
    bool nested;
} rows[] = {
    {"op", FIELD_OP, ALL, TOP},
    {"protocol", FIELD_PROTOCOL, ALL, TOP},
    {"request_id", FIELD_REQUEST_ID, ALL, TOP},
    {"rid", FIELD_REQUEST_ID, ALL, TOP},
    {"model", FIELD_MODEL, GEN | TOK | DETOK | LOAD | UNLOAD | PIN, TOP},
    {"on_behalf_of", FIELD_ON_BEHALF_OF, ALL, TOP},
    {"wait", FIELD_WAIT, GEN | TOK | DETOK | LOAD | UNLOAD, TOP},
    {"pinned", FIELD_PINNED, PIN, TOP},
    {"prompt", FIELD_PROMPT, GEN | TOK, TOP},
    {"inputs", FIELD_PROMPT, GEN | TOK, TOP},
    {"text", FIELD_PROMPT, GEN | TOK, TOP},
    {"text_input", FIELD_PROMPT, GEN | TOK, TOP},
    {"input_ids", FIELD_PROMPT, GEN, TOP},
    {"messages", FIELD_MESSAGES, GEN | TOK, TOP},
    {"stream", FIELD_STREAM, GEN, TOP},
    {"streaming", FIELD_STREAM, GEN, TOP},
    {"max_tokens", FIELD_MAX_TOKENS, GEN, NESTED},
    {"max_new_tokens", FIELD_MAX_TOKENS, GEN, NESTED},
    {"max_completion_tokens", FIELD_MAX_TOKENS, GEN, NESTED},
    {"n_predict", FIELD_MAX_TOKENS, GEN, NESTED},
    {"request_output_len", FIELD_MAX_TOKENS, GEN, NESTED},
    {"min_tokens", FIELD_MIN_TOKENS, GEN, NESTED},
    {"min_new_tokens", FIELD_MIN_TOKENS, GEN, NESTED},
    {"temperature", FIELD_TEMPERATURE, GEN, NESTED},
    {"do_sample", FIELD_DO_SAMPLE, GEN, NESTED},
    {"top_p", FIELD_TOP_P, GEN, NESTED},
    {"runtime_top_p", FIELD_TOP_P, GEN, NESTED},
    {"top_k", FIELD_TOP_K, GEN, NESTED},
    {"runtime_top_k", FIELD_TOP_K, GEN, NESTED},
    {"min_p", FIELD_MIN_P, GEN, NESTED},
    {"seed", FIELD_SEED, GEN, NESTED},
    {"sampling_seed", FIELD_SEED, GEN, NESTED},
    {"random_seed", FIELD_SEED, GEN, NESTED},
    {"repetition_penalty", FIELD_REPETITION_PENALTY, GEN, NESTED},
    {"repeat_penalty", FIELD_REPETITION_PENALTY, GEN, NESTED},
    {"presence_penalty", FIELD_PRESENCE_PENALTY, GEN, NESTED},
    {"frequency_penalty", FIELD_FREQUENCY_PENALTY, GEN, NESTED},
    {"logit_bias", FIELD_LOGIT_BIAS, GEN, NESTED},
    {"stop", FIELD_STOP, GEN, NESTED},
    {"stop_sequences", FIELD_STOP, GEN, NESTED},
    {"stop_strings", FIELD_STOP, GEN, NESTED},
    {"stop_token_ids", FIELD_STOP_TOKEN_IDS, GEN, NESTED},
    {"eos_token_id", FIELD_EOS_TOKEN_ID, GEN, NESTED},
    {"end_id", FIELD_EOS_TOKEN_ID, GEN, NESTED},
    {"ignore_eos", FIELD_IGNORE_EOS, GEN, NESTED},
    {"ignore_eos_token", FIELD_IGNORE_EOS, GEN, NESTED},
    {"include_stop_str_in_output", FIELD_KEEP_STOP, GEN, NESTED},
    {"no_stop_trim", FIELD_KEEP_STOP, GEN, NESTED},
    {"n", FIELD_N, GEN, NESTED},
    {"num_return_sequences", FIELD_N, GEN, NESTED},
    {"n_cmpl", FIELD_N, GEN, NESTED},
    {"best_of", FIELD_BEST_OF, GEN, NESTED},
    {"num_beams", FIELD_NUM_BEAMS, GEN, NESTED},
    {"beam_width", FIELD_NUM_BEAMS, GEN, NESTED},
    {"use_beam_search", FIELD_USE_BEAM_SEARCH, GEN, NESTED},
    {"length_penalty", FIELD_LENGTH_PENALTY, GEN, NESTED},
    {"len_penalty", FIELD_LENGTH_PENALTY, GEN, NESTED},
    {"early_stopping", FIELD_EARLY_STOPPING, GEN, NESTED},
    {"logprobs", FIELD_LOGPROBS, GEN, NESTED},
    {"n_probs", FIELD_LOGPROBS, GEN, NESTED},
    {"return_logprob", FIELD_LOGPROBS, GEN, NESTED},
    {"top_logprobs", FIELD_TOP_LOGPROBS, GEN, NESTED},
    {"top_logprobs_num", FIELD_TOP_LOGPROBS, GEN, NESTED},
    {"prompt_logprobs", FIELD_PROMPT_LOGPROBS, GEN, NESTED},
    {"return_token_ids", FIELD_RETURN_TOKEN_IDS, GEN, NESTED},
    {"echo", FIELD_ECHO, GEN, NESTED},
    {"return_full_text", FIELD_ECHO, GEN, NESTED},
    {"exclude_input_from_output", FIELD_EXCLUDE_INPUT, GEN, NESTED},
    {"skip_special_tokens", FIELD_SKIP_SPECIAL_TOKENS, GEN | DETOK, NESTED},
    {"add_special_tokens", FIELD_ADD_SPECIAL_TOKENS, GEN | TOK, NESTED},
    {"parse_special", FIELD_PARSE_SPECIAL, GEN | TOK, NESTED},
    {"add_generation_prompt", FIELD_ADD_GENERATION_PROMPT, GEN | TOK, NESTED},
    {"continue_final_message", FIELD_CONTINUE_FINAL_MESSAGE, GEN | TOK, NESTED},
    {"prediction", FIELD_PREDICTION, GEN, TOP},
    {"tools", FIELD_TOOLS, GEN | TOK, TOP},
    {"tool_choice", FIELD_TOOL_CHOICE, GEN, TOP},
    {"parallel_tool_calls", FIELD_PARALLEL_TOOL_CALLS, GEN, TOP},
    {"include_reasoning", FIELD_INCLUDE_REASONING, GEN, TOP},
    {"documents", FIELD_DOCUMENTS, GEN | TOK, TOP},
    {"chat_template_kwargs", FIELD_CHAT_TEMPLATE_KWARGS, GEN | TOK, TOP},
    {"response_format", FIELD_RESPONSE_FORMAT, GEN, NESTED},
    {"structured_outputs", FIELD_STRUCTURED_OUTPUTS, GEN, NESTED},
    {"priority", FIELD_PRIORITY, GEN, NESTED},
    {"timeout_ms", FIELD_TIMEOUT_MS, GEN, NESTED},
    {"token_ids", FIELD_TOKEN_IDS, DETOK, TOP},
    {"tokens", FIELD_TOKEN_IDS, DETOK, TOP},
    {"return_token_strs", FIELD_RETURN_TOKEN_STRS, TOK, TOP},
};
#define N_ROWS (sizeof rows / sizeof rows[0])

/* Fields of other servers that are not implemented. The value without effect is accepted. */
static const struct refused {
    const char *name;
    enum { NEVER, NUMBER, IS_FALSE, IS_TRUE } neutral;
    double number;
} refusals[] = {
    {"typical_p", NUMBER, 1},
    {"epsilon_cutoff", NUMBER, 0},
    {"eta_cutoff", NUMBER, 0},
    {"no_repeat_ngram_size", NUMBER, 0},
    {"encoder_repetition_penalty", NUMBER, 1},
    {"num_beam_groups", NUMBER, 1},
    {"diversity_penalty", NUMBER, 0},
    {"beam_search_diversity_rate", NUMBER, 0},
    {"penalty_alpha", NUMBER, 0},
    {"guidance_scale", NUMBER, 1},
    {"min_length", NUMBER, 0},
    {"repeat_last_n", NUMBER, -1},
    {"stream_interval", NUMBER, 1},
    {"n_keep", NUMBER, 0},
    {"id_slot", NUMBER, -1},
    {"t_max_predict_ms", NUMBER, 0},
    {"logprob_start_len", NUMBER, -1},
    {"mirostat", NUMBER, 0},
    {"dynatemp_range", NUMBER, 0},
    {"xtc_probability", NUMBER, 0},
    {"dry_multiplier", NUMBER, 0},
    {"top_n_sigma", NUMBER, -1},
    {"spaces_between_special_tokens", IS_TRUE, 0},
    {"detokenize", IS_TRUE, 0},
    {"cache_prompt", IS_TRUE, 0},
    {"return_tokens", IS_TRUE, 0},
    {"details", IS_FALSE, 0},
    {"decoder_input_details", IS_FALSE, 0},
    {"output_scores", IS_FALSE, 0},
    {"max_length", NEVER, 0},
    {"max_time", NEVER, 0},
    {"prompt_embeds", NEVER, 0},
    {"truncate_prompt_tokens", NEVER, 0},
    {"bad_words", NEVER, 0},
    {"bad_words_ids", NEVER, 0},
    {"bad", NEVER, 0},
    {"bad_token_ids", NEVER, 0},
    {"bad_sequences", NEVER, 0},
    {"allowed_token_ids", NEVER, 0},
    {"suppress_tokens", NEVER, 0},
    {"sequence_bias", NEVER, 0},
    {"embedding_bias", NEVER, 0},
    {"repetition_detection", NEVER, 0},
    {"logits_processors", NEVER, 0},
    {"guided_decoding", NEVER, 0},
    {"guided_grammar", NEVER, 0},
    {"json_schema", NEVER, 0},
    {"regex", NEVER, 0},
    {"ebnf", NEVER, 0},
    {"structural_tag", NEVER, 0},
    {"grammar", NEVER, 0},
    {"suffix", NEVER, 0},
    {"user", NEVER, 0},
    {"cache_salt", NEVER, 0},
    {"session_id", NEVER, 0},
    {"stream_options", NEVER, 0},
    {"samplers", NEVER, 0},
    {"lora", NEVER, 0},
    {"lora_path", NEVER, 0},
    {"lora_request", NEVER, 0},
    {"adapters", NEVER, 0},
    {"functions", NEVER, 0},
    {"function_call", NEVER, 0},
    {"chat_template", NEVER, 0},
    {"reasoning_effort", NEVER, 0},
};

const char *fields_name(const struct fields *f, enum field_id id, long item, char name[64])
{
    const char *written = f->name[id], *inside = f->inside[id];
    for (size_t i = 0; written == NULL && i < N_ROWS; i++)
        written = rows[i].id == id ? rows[i].name : NULL;
    int n = snprintf(name, 64, "%s%s%s", inside != NULL ? inside : "", inside != NULL ? "." : "", written);
    if (item >= 0)
        (void)snprintf(name + n, 64 - (size_t)n, "[%ld]", item);
    return name;
}

int fields_fail(const struct fields *f, enum field_id id, long item, struct protocol_error *error, const char *format,
                ...)
{
    char name[64], text[ERR_TEXT_BYTES];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, fields_name(f, id, item, name), "%s", text);
}

/* A known but unimplemented field is accepted if its value has no effect. */
static int check_refused(const struct refused *r, const char *written, const json_t *value,
                         struct protocol_error *error)
{
    bool neutral = json_is_null(value);
    if (r->neutral == NEVER)
        return neutral ? 0 : protocol_fail(error, PROTOCOL_BAD_REQUEST, written, "not implemented");
    if (r->neutral == NUMBER) {
        neutral = neutral || (json_is_number(value) && json_number_value(value) == r->number);
        return neutral ? 0
                       : protocol_fail(error, PROTOCOL_BAD_REQUEST, written, "not implemented: only %g is accepted",
                                       r->number);
    }
    neutral = neutral || (json_is_boolean(value) && json_is_true(value) == (r->neutral == IS_TRUE));
    return neutral ? 0
                   : protocol_fail(error, PROTOCOL_BAD_REQUEST, written, "not implemented: only %s is accepted",
                                   r->neutral == IS_TRUE ? "true" : "false");
}

/* Names that vLLM has dropped, and their replacements. */
static const struct renamed {
    const char *name, *now;
} renames[] = {{"guided_json", "json"}, {"guided_regex", "regex"}, {"guided_choice", "choice"}};

static int refuse_name(const char *key, const char *written, const json_t *value, struct protocol_error *error)
{
    for (size_t i = 0; i < sizeof renames / sizeof renames[0]; i++)
        if (strcmp(renames[i].name, key) == 0)
            return json_is_null(value) ? 0
                                       : protocol_fail(error, PROTOCOL_BAD_REQUEST, written,
                                                       "not implemented: \"structured_outputs\": {\"%s\": ...} is its "
                                                       "name now",
                                                       renames[i].now);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (strcmp(refusals[i].name, key) == 0)
            return check_refused(&refusals[i], written, value, error);
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, written, "unknown field");
}

static const struct field_row *find_row(const char *key)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, key) == 0)
            return &rows[i];
    return NULL;
}

enum field_id fields_find(const char *name)
{
    const struct field_row *row = find_row(name);
    return row != NULL ? row->id : FIELD_OP;
}

static int take_field(struct fields *f, const char *key, const char *inside, const json_t *value, enum protocol_op op,
                      struct protocol_error *error)
{
    char written[64], other[64];
    const struct field_row *row = find_row(key);
    (void)snprintf(written, sizeof written, "%s%s%s", inside != NULL ? inside : "", inside != NULL ? "." : "", key);
    if (row == NULL)
        return refuse_name(key, written, value, error);
    if ((row->ops & OP(op)) == 0)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, written, "op \"%s\" has no such field", protocol_op_name(op));
    if (inside != NULL && !row->nested)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, written, "belongs at the top of the message, not in \"%s\"",
                             inside);
    if (json_is_null(value))
        return 0;
    if (f->value[row->id] != NULL)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, written, "given twice: \"%s\" means the same",
                             fields_name(f, row->id, -1, other));
    f->value[row->id] = value;
    f->name[row->id] = row->name;
    f->inside[row->id] = inside;
    return 0;
}

static int take_nested(struct fields *f, const char *inside, json_t *object, enum protocol_op op,
                       struct protocol_error *error)
{
    if (json_is_null(object))
        return 0;
    if (!json_is_object(object))
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, inside, "found %s, expected an object",
                             json_type_name(object));
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at))
        if (take_field(f, json_object_iter_key(at), inside, json_object_iter_value(at), op, error) != 0)
            return -1;
    return 0;
}

int fields_collect(struct fields *f, const json_t *object, enum protocol_op op, struct protocol_error *error)
{
    json_t *o = (json_t *)object; /* jansson's iterators want it so */
    *f = (struct fields){0};
    for (void *at = json_object_iter(o); at != NULL; at = json_object_iter_next(o, at)) {
        const char *key = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        const char *inside = strcmp(key, "parameters") == 0        ? "parameters"
                             : strcmp(key, "sampling_params") == 0 ? "sampling_params"
                                                                   : NULL;
        int rc = inside != NULL && op == PROTOCOL_GENERATE ? take_nested(f, inside, value, op, error)
                                                           : take_field(f, key, NULL, value, op, error);
        if (rc != 0)
            return -1;
    }
    return 0;
}

void fields_default(struct fields *f, const json_t *defaults)
{
    bool greedy = json_is_false(f->value[FIELD_DO_SAMPLE]) || json_is_true(f->value[FIELD_USE_BEAM_SEARCH]) ||
                  json_integer_value(f->value[FIELD_NUM_BEAMS]) > 1;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)defaults, key, value)
    {
        enum field_id id = fields_find(key);
        if (f->value[id] == NULL && !(id == FIELD_TEMPERATURE && greedy))
            f->value[id] = value;
    }
}

int64_t fields_int(const struct fields *f, enum field_id id, int64_t missing, int64_t low, int64_t high,
                   struct protocol_error *error)
{
    const json_t *value = f->value[id];
    int64_t n;
    if (value == NULL)
        return missing;
    if (json_to_int(value, &n) && n >= low && n <= high)
        return n;
    if (json_to_int(value, &n))
        fields_fail(f, id, -1, error, "found %lld, expected an integer in [%lld, %lld]", (long long)n, (long long)low,
                    (long long)high);
    else
        fields_fail(f, id, -1, error, "found %s, expected an integer in [%lld, %lld]", json_type_name(value),
                    (long long)low, (long long)high);
    return missing;
}

double fields_real(const struct fields *f, enum field_id id, double missing, double low, double high,
                   struct protocol_error *error)
{
    const json_t *value = f->value[id];
    double x = json_number_value(value);
    if (value == NULL || (json_is_number(value) && x >= low && x <= high))
        return value == NULL ? missing : x;
    if (json_is_number(value))
        fields_fail(f, id, -1, error, "found %g, expected a number in [%g, %g]", x, low, high);
    else
        fields_fail(f, id, -1, error, "found %s, expected a number in [%g, %g]", json_type_name(value), low, high);
    return missing;
}

bool fields_bool(const struct fields *f, enum field_id id, bool missing, struct protocol_error *error)
{
    const json_t *value = f->value[id];
    if (value != NULL && !json_is_boolean(value))
        fields_fail(f, id, -1, error, "found %s, expected true or false", json_type_name(value));
    return json_is_boolean(value) ? json_is_true(value) : missing;
}

static int check_id(const json_t *value, int vocab, const char *name, long item, int32_t *id,
                    struct protocol_error *error)
{
    int64_t n;
    char place[64];
    if (json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < vocab) {
        *id = (int32_t)json_integer_value(value);
        return 0;
    }
    if (item >= 0)
        (void)snprintf(place, sizeof place, "%.40s[%ld]", name, item);
    else
        (void)snprintf(place, sizeof place, "%.60s", name);
    if (json_to_int(value, &n))
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, place, "found %lld, expected a token id in [0, %d]",
                             (long long)n, vocab - 1);
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, place, "found %s, expected a token id in [0, %d]",
                         json_type_name(value), vocab - 1);
}

int fields_read_ids(const json_t *list, int vocab, const char *name, struct token_list *out,
                    struct protocol_error *error)
{
    size_t n = json_array_size(list);
    if (n > out->capacity - out->n) {
        int32_t *grown = realloc(out->id, (out->n + n) * sizeof *grown);
        if (grown == NULL)
            return protocol_fail(error, PROTOCOL_INTERNAL, name, "out of host memory: %zu token ids", n);
        out->id = grown;
        out->capacity = out->n + n;
    }
    for (size_t i = 0; i < n; i++)
        if (check_id(json_array_get(list, i), vocab, name, (long)i, &out->id[out->n + i], error) != 0)
            return -1;
    out->n += n;
    return 0;
}

int fields_ids(const struct fields *f, enum field_id id, bool one_is_enough, size_t most, int vocab,
               struct token_list *out, struct protocol_error *error)
{
    const json_t *value = f->value[id];
    char name[64];
    if (value == NULL)
        return 0;
    (void)fields_name(f, id, -1, name);
    if (json_is_array(value) && json_array_size(value) > most)
        return fields_fail(f, id, -1, error, "found %zu ids, at most %zu are accepted", json_array_size(value), most);
    if (json_is_array(value))
        return fields_read_ids(value, vocab, name, out, error);
    if (!one_is_enough || !json_is_number(value))
        return fields_fail(f, id, -1, error, "found %s, expected %sa list of token ids", json_type_name(value),
                           one_is_enough ? "a token id or " : "");
    json_t *list = json_pack("[O]", value);
    int rc = list == NULL ? protocol_fail(error, PROTOCOL_INTERNAL, name, "out of host memory")
                          : fields_read_ids(list, vocab, name, out, error);
    json_decref(list);
    return rc;
}
