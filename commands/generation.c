/* commands/generation.c - see generation.h. */
#include "commands/generation.h"
#include "base/files.h"
#include "base/json.h"
#include "text/grammar/form.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX_BYTES ((size_t)4 << 20)
#define MAX_BIAS         1e6 /* magnitude that --logit-bias adds */

/* One "a" or "a:x" of a comma-separated list; returns the text after it, or NULL. */
static const char *parse_item(const char *text, long long *id, double *value)
{
    char *end = NULL;
    errno = 0;
    *id = strtoll(text, &end, 10);
    if (end == text || errno != 0)
        return NULL;
    if (value != NULL) {
        if (*end != ':')
            return NULL;
        text = end + 1;
        *value = strtod(text, &end);
        if (end == text || !(fabs(*value) <= MAX_BIAS))
            return NULL;
    }
    return *end == ',' && end[1] != '\0' ? end + 1 : *end == '\0' ? end : NULL;
}

int generation_parse_ids(const char *text, int32_t *id, int capacity, int vocab, const char *option, struct err *e)
{
    int n = 0;
    for (const char *at = text; n == 0 || *at != '\0'; n++) {
        long long value = 0;
        const char *next = parse_item(at, &value, NULL);
        if (next == NULL || value < 0 || value >= vocab)
            return ERR(e, ERR_USAGE, "--%s: found \"%.40s\", expected token ids in [0, %d] with commas between", option,
                       at, vocab - 1);
        if (n == capacity)
            return ERR(e, ERR_USAGE, "--%s: more than %d ids", option, capacity);
        id[n] = (int32_t)value;
        at = next;
    }
    return n;
}

static int parse_bias(struct sampling *s, const char *text, int vocab, struct err *e)
{
    for (const char *at = text; s->n_bias == 0 || *at != '\0'; s->n_bias++) {
        long long id = 0;
        double bias = 0;
        const char *next = parse_item(at, &id, &bias);
        if (next == NULL || id < 0 || id >= vocab)
            return ERR(e, ERR_USAGE,
                       "--logit-bias: found \"%.40s\", expected ID:BIAS with ids in [0, %d] and biases in [-%g, %g], "
                       "commas between",
                       at, vocab - 1, MAX_BIAS, MAX_BIAS);
        if (s->n_bias == SAMPLING_MAX_BIAS)
            return ERR(e, ERR_USAGE, "--logit-bias: more than %d entries", SAMPLING_MAX_BIAS);
        s->bias_id[s->n_bias] = (int32_t)id;
        s->bias[s->n_bias] = (float)bias;
        at = next;
    }
    return 0;
}

/* An optional file: NULL without an error when it does not exist. */
static json_t *read_optional(const char *dir, const char *name, char *path, size_t bytes, struct err *e)
{
    (void)snprintf(path, bytes, "%s/%s", dir, name);
    return files_present(path) ? json_read_model_file(path, CONFIG_MAX_BYTES, e) : NULL;
}

/* eos_token_id: an integer or a list of them. Ids beyond the vocabulary cannot be generated and are skipped. */
static int read_eos(struct request_rules *rules, const json_t *config, int vocab, const char *what, struct err *e)
{
    const json_t *eos = json_object_get(config, "eos_token_id");
    size_t n = json_is_array(eos) ? json_array_size(eos) : 1;
    if (eos == NULL || json_is_null(eos))
        return 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        if (!json_is_integer(id))
            return ERR(e, ERR_INPUT, "%s: \"eos_token_id\" has %s, expected an integer or a list of integers", what,
                       json_type_name(id));
        if (json_integer_value(id) < 0 || json_integer_value(id) >= vocab)
            continue;
        if (rules->sampling.n_eos == SAMPLING_MAX_EOS)
            return ERR(e, ERR_UNSUPPORTED, "%s: more than %d end-of-text ids", what, SAMPLING_MAX_EOS);
        rules->sampling.eos[rules->sampling.n_eos++] = (int32_t)json_integer_value(id);
    }
    return 0;
}

/* The part of config.json that has the key: a multimodal checkpoint may have it in "text_config" only. */
static const json_t *part_with(const json_t *config, const char *key)
{
    const json_t *text = json_object_get(config, "text_config"), *own = json_object_get(config, key);
    return (own == NULL || json_is_null(own)) && json_is_object(text) ? text : config;
}

static int read_special_ids(struct request_rules *rules, int32_t *bos, const json_t *generation, const char *what,
                            const char *model_dir, int vocab, struct err *e)
{
    char path[4200];
    *bos = generation != NULL ? (int32_t)json_get_int(generation, "bos_token_id", -1, -1, INT32_MAX, what, e) : -1;
    if (generation != NULL && read_eos(rules, generation, vocab, what, e) != 0)
        return -1;
    json_t *config = read_optional(model_dir, "config.json", path, sizeof path, e);
    if (config == NULL)
        return e->code == ERR_NONE ? 0 : -1;
    if (*bos < 0)
        *bos = (int32_t)json_get_int(part_with(config, "bos_token_id"), "bos_token_id", -1, -1, INT32_MAX, path, e);
    if (rules->sampling.n_eos == 0)
        (void)read_eos(rules, part_with(config, "eos_token_id"), vocab, path, e);
    json_decref(config);
    if (*bos >= vocab)
        *bos = -1;
    return e->code == ERR_NONE ? 0 : -1;
}

int generation_ids(struct request_rules *rules, int32_t *bos, const char *model_dir, int vocab, struct err *e)
{
    char path[4200];
    json_t *g = read_optional(model_dir, "generation_config.json", path, sizeof path, e);
    int found = e->code == ERR_NONE ? read_special_ids(rules, bos, g, path, model_dir, vocab, e) : -1;
    json_decref(g);
    return found;
}

static double chosen(double option, const json_t *g, const char *key, double missing, double low, double high,
                     const char *what, struct err *e)
{
    if (!isnan(option) || g == NULL)
        return isnan(option) ? missing : option;
    return json_get_real(g, key, missing, low, high, what, e);
}

/* Settings of generation_config.json that are not implemented must not be ignored silently. */
static int refuse_unsupported(const json_t *g, const char *what, struct err *e)
{
    static const struct {
        const char *key;
        double neutral;
    } keys[] = {{"num_beams", 1},
                {"no_repeat_ngram_size", 0},
                {"typical_p", 1},
                {"epsilon_cutoff", 0},
                {"eta_cutoff", 0},
                {"encoder_repetition_penalty", 1},
                {"penalty_alpha", 0},
                {"num_beam_groups", 1},
                {"guidance_scale", 1},
                {"num_return_sequences", 1},
                {"min_length", 0},
                {"top_h", 1},
                {"encoder_no_repeat_ngram_size", 0},
                {"diversity_penalty", 0}};
    static const char *const lists[] = {"bad_words_ids",
                                        "suppress_tokens",
                                        "begin_suppress_tokens",
                                        "sequence_bias",
                                        "forced_bos_token_id",
                                        "forced_eos_token_id",
                                        "stop_strings",
                                        "exponential_decay_length_penalty",
                                        "max_time",
                                        "dola_layers",
                                        "watermarking_config"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = json_object_get(g, keys[i].key);
        if (json_is_number(value) && json_number_value(value) != keys[i].neutral)
            return ERR(e, ERR_UNSUPPORTED, "%s: \"%s\" is %g, only %g is supported", what, keys[i].key,
                       json_number_value(value), keys[i].neutral);
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const json_t *value = json_object_get(g, lists[i]);
        if (value != NULL && !json_is_null(value) && !(json_is_array(value) && json_array_size(value) == 0))
            return ERR(e, ERR_UNSUPPORTED, "%s: \"%s\" is not supported", what, lists[i]);
    }
    return 0;
}

static int read_sampling(struct request_rules *rules, const struct sampling_options *o, const json_t *g,
                         const char *what, struct err *e)
{
    struct sampling *s = &rules->sampling;
    bool sampled = g != NULL && json_get_bool(g, "do_sample", false, what, e);
    const json_t *with =
        sampled ? g : NULL; /* greedy generation ignores the warpers of the file, as transformers does */
    s->temperature = (float)chosen(o->temperature, with, "temperature", sampled ? 1.0 : 0.0, 0, 100, what, e);
    s->top_p = (float)chosen(o->top_p, with, "top_p", 1, 0, 1, what, e);
    s->min_p = (float)chosen(o->min_p, with, "min_p", 0, 0, 1, what, e);
    s->top_k = o->top_k >= -1 ? (int32_t)o->top_k
               : with != NULL ? (int32_t)json_get_int(with, "top_k", 0, -1, 1 << 24, what, e)
                              : 0;
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    s->repetition_penalty = (float)chosen(o->repetition_penalty, g, "repetition_penalty", 1, 0.01, 100, what, e);
    s->presence_penalty = (float)chosen(o->presence_penalty, NULL, "", 0, 0, 0, what, e);
    s->frequency_penalty = (float)chosen(o->frequency_penalty, NULL, "", 0, 0, 0, what, e);
    s->seed = (uint64_t)o->seed;
    s->min_tokens = o->min_tokens >= 0 ? (int32_t)o->min_tokens
                    : g != NULL        ? (int32_t)json_get_int(g, "min_new_tokens", 0, 0, 1 << 24, what, e)
                                       : 0;
    rules->max_tokens = o->max_tokens >= 0 ? (int)o->max_tokens
                        : g != NULL        ? (int)json_get_int(g, "max_new_tokens", 128, 1, 1 << 24, what, e)
                                           : 128;
    if (e->code != ERR_NONE)
        return -1;
    bool warped = (!isnan(o->top_p) && o->top_p < 1) || (!isnan(o->min_p) && o->min_p > 0) || o->top_k > 0;
    if (s->temperature == 0 && warped)
        return ERR(e, ERR_USAGE, "--top-k, --top-p and --min-p have no effect at temperature 0: give --temperature");
    if (s->min_tokens > rules->max_tokens)
        return ERR(e, ERR_USAGE, "--min-tokens %d is more than --max-tokens %d", s->min_tokens, rules->max_tokens);
    return 0;
}

/* The ids after which a sequence ends: end-of-text unless ignored, and --stop-token-ids. */
static int collect_stop_ids(struct request_rules *rules, const struct generate_options *o, int vocab, struct err *e)
{
    int32_t id[REQUEST_MAX_STOP_IDS - SAMPLING_MAX_EOS] = {0};
    int n = 0;
    if (o->stop_token_ids != NULL)
        n = generation_parse_ids(o->stop_token_ids, id, REQUEST_MAX_STOP_IDS - SAMPLING_MAX_EOS, vocab,
                                 "stop-token-ids", e);
    if (n > 0 && request_rules_stop(rules, id, n) != 0)
        return ERR(e, ERR_UNSUPPORTED, "--min-tokens with more than %d end-of-text and stop ids", SAMPLING_MAX_EOS);
    if (n == 0)
        (void)request_rules_stop(rules, NULL, 0);
    return e->code == ERR_NONE ? 0 : -1;
}

/* A stop text that is not UTF-8 could end the output within a character. */
static int check_stop_texts(const struct generate_options *o, struct err *e)
{
    for (int i = 0; i < (int)o->n_stop; i++) {
        json_t *text = json_string(o->stop[i]); /* NULL: not valid UTF-8 */
        if (text == NULL)
            return ERR(e, ERR_USAGE, "--stop: text %d is not valid UTF-8", i + 1);
        if (json_string_length(text) > STOP_MAX_BYTES) {
            json_decref(text);
            return ERR(e, ERR_USAGE, "--stop: text %d has %zu bytes, expected at most %d", i + 1, strlen(o->stop[i]),
                       STOP_MAX_BYTES);
        }
        json_decref(text);
    }
    return 0;
}

void generation_rules_close(struct request_rules *rules)
{
    stop_close(rules->stop);
    form_close((struct form *)rules->form);
    rules->stop = NULL;
    rules->form = NULL;
}

/* The grammar of --json-schema, --regex or --choice. */
static int read_form(struct request_rules *rules, const struct generate_options *o, struct err *e)
{
    int n = (o->json_schema != NULL) + (o->regex != NULL) + (o->n_choices > 0);
    struct form *form = NULL;
    if (n == 0)
        return 0;
    if (n > 1)
        return ERR(e, ERR_USAGE, "--json-schema, --regex and --choice: one of them, not several");
    if (o->sampling.ignore_eos || o->sampling.min_tokens > 0)
        return ERR(e, ERR_USAGE,
                   "--%s is not possible with --json-schema, --regex and --choice, which say where the "
                   "text ends",
                   o->sampling.ignore_eos ? "ignore-eos" : "min-tokens");
    json_t *value = o->json_schema != NULL ? json_read_file(o->json_schema, FORM_MAX_BYTES, e)
                    : o->regex != NULL     ? json_string(o->regex)
                                           : json_array();
    for (int i = 0; i < o->n_choices; i++)
        json_array_append_new(value, json_string(o->choice[i]));
    if (value == NULL && e->code == ERR_NONE)
        return ERR(e, ERR_USAGE, "--regex: not valid UTF-8");
    enum form_kind kind = o->json_schema != NULL ? FORM_SCHEMA : o->regex != NULL ? FORM_REGEX : FORM_CHOICE;
    if (value != NULL)
        (void)form_open(&form, kind, value, e);
    rules->form = form;
    json_decref(value);
    return e->code == ERR_NONE ? 0 : -1;
}

int generation_rules(struct request_rules *rules, int32_t *bos, const struct generate_options *o, int vocab,
                     struct err *e)
{
    char path[4200];
    memset(rules, 0, sizeof *rules);
    if (check_stop_texts(o, e) != 0)
        return -1;
    rules->ignore_eos = o->sampling.ignore_eos;
    rules->stop = o->n_stop > 0 ? stop_open((int)o->n_stop, o->stop, e) : NULL;
    rules->keep_stop = o->include_stop;
    rules->skip_special = !o->keep_special;
    rules->want_logprobs = o->logprobs >= 0;
    rules->sampling.n_top = o->logprobs > 0 ? (int32_t)o->logprobs : 0;
    rules->want_prompt_logprobs = o->prompt_logprobs >= 0;
    rules->sampling.n_prompt_top = o->prompt_logprobs > 0 ? (int32_t)o->prompt_logprobs : 0;
    json_t *g = read_optional(o->run.model, "generation_config.json", path, sizeof path, e);
    if (g != NULL && !json_is_object(g))
        ERR(e, ERR_INPUT, "%s: %s, expected an object", path, json_type_name(g));
    if (e->code == ERR_NONE && (g == NULL || refuse_unsupported(g, path, e) == 0) &&
        read_special_ids(rules, bos, g, path, o->run.model, vocab, e) == 0 &&
        read_sampling(rules, &o->sampling, g, path, e) == 0)
        (void)collect_stop_ids(rules, o, vocab, e);
    if (e->code == ERR_NONE)
        (void)read_form(rules, o, e);
    if (e->code == ERR_NONE && o->logit_bias != NULL)
        (void)parse_bias(&rules->sampling, o->logit_bias, vocab, e);
    json_decref(g);
    return e->code == ERR_NONE ? 0 : -1;
}
