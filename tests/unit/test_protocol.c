/* tests/unit/test_protocol.c - coordinator/protocol*.c: every field's type, range, names, default and error text. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "coordinator/chat.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct protocol_model model = {.name = "demo", .vocab = 1000, .n_eos = 2, .eos = {1, 7}};

struct trial {
    struct protocol_message m;
    struct protocol_error error;
    int rc;
};

static void parse_bytes(struct trial *t, const char *json, size_t bytes)
{
    t->rc = protocol_parse(&t->m, json, bytes, &model, true, &t->error);
    assert_int_equal(t->rc, t->error.code == 0 ? 0 : -1);
}

/* The message must be good. */
static struct protocol_generate *good(struct trial *t, const char *json)
{
    parse_bytes(t, json, strlen(json));
    if (t->rc != 0)
        print_error("%s\n%s: %s\n", json, t->error.field, t->error.message);
    assert_int_equal(t->rc, 0);
    return &t->m.generate;
}

static void bad(const char *json, int code, const char *field, const char *message)
{
    struct trial t;
    parse_bytes(&t, json, strlen(json));
    if (t.error.code != code || strcmp(t.error.field, field) != 0 || strcmp(t.error.message, message) != 0)
        print_error("%.300s\ngot %d %s: %s\nexpected %d %s: %s\n", json, t.error.code, t.error.field, t.error.message,
                    code, field, message);
    assert_int_equal(t.error.code, code);
    assert_string_equal(t.error.field, field);
    assert_string_equal(t.error.message, message);
    protocol_message_close(&t.m);
}

static void close_trial(struct trial *t)
{
    protocol_message_close(&t->m);
}

/* ---------------------------------------------------------------- one table of all fields of `generate` */

/* Where a number of the parsed message is looked up. */
#define NUMBERS(X)                                                                          \
    X(max_tokens, g->rules.max_tokens)                                                      \
    X(min_tokens, g->rules.sampling.min_tokens)                                             \
    X(temperature, g->rules.sampling.temperature)                                           \
    X(top_p, g->rules.sampling.top_p)                                                       \
    X(top_k, g->rules.sampling.top_k)                                                       \
    X(min_p, g->rules.sampling.min_p)                                                       \
    X(seed, g->has_seed ? (double)g->rules.sampling.seed : -1)                              \
    X(repetition_penalty, g->rules.sampling.repetition_penalty)                             \
    X(presence_penalty, g->rules.sampling.presence_penalty)                                 \
    X(frequency_penalty, g->rules.sampling.frequency_penalty)                               \
    X(n_bias, g->rules.sampling.n_bias)                                                     \
    X(n_stop, g->rules.stop.n)                                                              \
    X(n_stop_ids, g->rules.n_stop_ids)                                                      \
    X(n_eos, g->rules.sampling.n_eos)                                                       \
    X(ignore_eos, g->rules.ignore_eos)                                                      \
    X(keep_stop, g->rules.keep_stop)                                                        \
    X(n, g->search.n)                                                                       \
    X(best_of, g->search.best_of)                                                           \
    X(num_beams, g->search.num_beams)                                                       \
    X(length_penalty, g->search.beam.length_penalty)                                        \
    X(early_stopping, g->search.beam.early_stopping)                                        \
    X(logprobs, g->rules.want_logprobs ? g->rules.sampling.n_top : -1)                      \
    X(prompt_logprobs, g->rules.want_prompt_logprobs ? g->rules.sampling.n_prompt_top : -1) \
    X(echo, g->echo)                                                                        \
    X(skip_special, g->rules.skip_special)                                                  \
    X(add_special_tokens, g->add_special_tokens)                                            \
    X(parse_special, g->parse_special)                                                      \
    X(stream, g->stream)                                                                    \
    X(priority, g->priority)                                                                \
    X(timeout_ms, (double)g->timeout_ms)

enum number {
#define NAME(name, value) V_##name,
    NUMBERS(NAME)
#undef NAME
};

static double number_of(const struct protocol_generate *g, enum number which)
{
    switch (which) {
#define CASE(name, value) \
    case V_##name:        \
        return (double)(value);
        NUMBERS(CASE)
#undef CASE
    }
    return NAN;
}

static const struct {
    const char *name; /* canonical */
    enum number which;
    double missing;
    struct accepted {
        const char *json;
        double value;
    } accepted[5];
    struct refused {
        const char *json, *message;
    } refused[6];
    const char *alias[6];
} table[] = {
    {"max_tokens",
     V_max_tokens,
     16,
     {{"1", 1}, {"16777216", 16777216}, {"-1", PROTOCOL_FILL}, {"16.0", 16}, {"null", 16}},
     {{"0", "found 0, expected -1 (what fits) or at least 1"},
      {"-2", "found -2, expected an integer in [-1, 16777216]"},
      {"16777217", "found 16777217, expected an integer in [-1, 16777216]"},
      {"1.5", "found a real number, expected an integer in [-1, 16777216]"},
      {"\"7\"", "found a string, expected an integer in [-1, 16777216]"},
      {"[7]", "found an array, expected an integer in [-1, 16777216]"}},
     {"max_new_tokens", "max_completion_tokens", "n_predict", "request_output_len"}},
    {"min_tokens",
     V_min_tokens,
     0,
     {{"0", 0}, {"16", 16}},
     {{"17", "found 17, expected an integer in [0, 16]"}, {"-1", "found -1, expected an integer in [0, 16]"}},
     {"min_new_tokens"}},
    {"temperature",
     V_temperature,
     1,
     {{"0", 0}, {"0.5", 0.5}, {"100", 100}},
     {{"-0.1", "found -0.1, expected a number in [0, 100]"},
      {"100.5", "found 100.5, expected a number in [0, 100]"},
      {"true", "found a boolean, expected a number in [0, 100]"}},
     {NULL}},
    {"top_p",
     V_top_p,
     1,
     {{"0", 0}, {"0.25", 0.25}, {"1", 1}},
     {{"1.5", "found 1.5, expected a number in [0, 1]"}, {"\"1\"", "found a string, expected a number in [0, 1]"}},
     {"runtime_top_p"}},
    {"top_k",
     V_top_k,
     0,
     {{"-1", 0}, {"0", 0}, {"40", 40}, {"16777216", 16777216}},
     {{"-2", "found -2, expected an integer in [-1, 16777216]"},
      {"{}", "found an object, expected an integer in [-1, 16777216]"}},
     {"runtime_top_k"}},
    {"min_p", V_min_p, 0, {{"0.5", 0.5}, {"1", 1}}, {{"-1", "found -1, expected a number in [0, 1]"}}, {NULL}},
    {"seed",
     V_seed,
     -1,
     {{"0", 0}, {"-1", -1}, {"9007199254740992", 9007199254740992.0}, {"9223372036854775807", 9223372036854775808.0}},
     {{"-2", "found -2, expected an integer in [-1, 9223372036854775807]"},
      {"0.5", "found a real number, expected an integer in [-1, 9223372036854775807]"},
      {"1e300", "found a real number, expected an integer in [-1, 9223372036854775807]"}},
     {"sampling_seed", "random_seed"}},
    {"repetition_penalty",
     V_repetition_penalty,
     1,
     {{"2", 2}, {"0.5", 0.5}},
     {{"0", "found 0, expected a number in [0.01, 100]"}, {"101", "found 101, expected a number in [0.01, 100]"}},
     {"repeat_penalty"}},
    {"presence_penalty",
     V_presence_penalty,
     0,
     {{"-2", -2}, {"2", 2}},
     {{"2.5", "found 2.5, expected a number in [-2, 2]"}, {"[]", "found an array, expected a number in [-2, 2]"}},
     {NULL}},
    {"frequency_penalty",
     V_frequency_penalty,
     0,
     {{"-2", -2}, {"0.5", 0.5}},
     {{"-3", "found -3, expected a number in [-2, 2]"}},
     {NULL}},
    {"logit_bias",
     V_n_bias,
     0,
     {{"{}", 0}, {"{\"5\": 1.5, \"999\": -100}", 2}, {"[[5, 100], [6, -0.5]]", 2}, {"[]", 0}},
     {{"{\"1000\": 1}", "found id 1000, expected a token id in [0, 999]"},
      {"{\"-1\": 1}", "found key \"-1\", expected a token id"},
      {"{\"5\": 101}", "found 101 for id 5, expected a number in [-100, 100]"},
      {"{\"5\": false}", "found a boolean for id 5, expected a number in [-100, 100]"},
      {"{\"5\": 1, \"05\": 2}", "found id 5 twice"},
      {"7", "found an integer, expected {\"ID\": BIAS} or [[ID, BIAS]]"}},
     {NULL}},
    {"stop",
     V_n_stop,
     0,
     {{"\"x\"", 1}, {"[\"a\", \"b\"]", 2}, {"[]", 0}},
     {{"5", "found an integer, expected a string or a list of strings"},
      {"\"\"", "found an empty string, expected text without NUL"},
      {"\"a\\u0000b\"", "found a NUL character, expected text without NUL"},
      {"[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]",
       "found 17 texts, at most 16 are accepted"}},
     {"stop_sequences", "stop_strings"}},
    {"stop_token_ids",
     V_n_stop_ids,
     2,
     {{"[5, 6]", 4}, {"[]", 2}},
     {{"5", "found an integer, expected a list of token ids"},
      {"\"5\"", "found a string, expected a list of token ids"}},
     {NULL}},
    {"eos_token_id",
     V_n_eos,
     2,
     {{"5", 1}, {"[5, 6, 7]", 3}, {"[]", 0}},
     {{"\"5\"", "found a string, expected a token id or a list of token ids"},
      {"[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", "found 17 ids, at most 16 are accepted"}},
     {"end_id"}},
    {"ignore_eos",
     V_ignore_eos,
     0,
     {{"true", 1}, {"false", 0}},
     {{"1", "found an integer, expected true or false"}},
     {"ignore_eos_token"}},
    {"include_stop_str_in_output",
     V_keep_stop,
     0,
     {{"true", 1}},
     {{"\"true\"", "found a string, expected true or false"}},
     {"no_stop_trim"}},
    {"n",
     V_n,
     1,
     {{"128", 128}},
     {{"0", "found 0, expected an integer in [1, 128]"}, {"129", "found 129, expected an integer in [1, 128]"}},
     {"num_return_sequences", "n_cmpl"}},
    {"best_of",
     V_best_of,
     0,
     {{"1", 1}, {"128", 128}},
     {{"0", "found 0, expected an integer in [1, 128]"}, {"129", "found 129, expected an integer in [1, 128]"}},
     {NULL}},
    {"num_beams",
     V_num_beams,
     1,
     {{"1", 1}, {"10", 10}},
     {{"0", "found 0, expected an integer in [1, 10]"}, {"11", "found 11, expected an integer in [1, 10]"}},
     {"beam_width"}},
    {"use_beam_search",
     V_num_beams,
     1,
     {{"false", 1}},
     {{"true", "found true, expected with it \"n\" or \"best_of\" in [2, 10]"},
      {"2", "found an integer, expected true or false"}},
     {NULL}},
    {"length_penalty",
     V_length_penalty,
     1,
     {{"null", 1}},
     {{"0.5", "has no effect without \"num_beams\" above 1"}, {"11", "found 11, expected a number in [-10, 10]"}},
     {"len_penalty"}},
    {"early_stopping",
     V_early_stopping,
     0,
     {{"null", 0}},
     {{"true", "has no effect without \"num_beams\" above 1"},
      {"\"always\"", "found a string, expected true, false or \"never\""},
      {"1", "found an integer, expected true, false or \"never\""}},
     {NULL}},
    {"logprobs",
     V_logprobs,
     -1,
     {{"0", 0}, {"20", 20}, {"true", 0}, {"false", -1}},
     {{"21", "found 21, expected an integer in [0, 20]"}, {"\"5\"", "found a string, expected an integer in [0, 20]"}},
     {"n_probs", "return_logprob"}},
    {"top_logprobs",
     V_logprobs,
     -1,
     {{"null", -1}},
     {{"3", "has no effect without \"logprobs\": true"}, {"21", "found 21, expected an integer in [0, 20]"}},
     {"top_logprobs_num"}},
    {"prompt_logprobs",
     V_prompt_logprobs,
     -1,
     {{"0", 0}, {"20", 20}},
     {{"-1", "found -1, expected an integer in [0, 20]"}},
     {NULL}},
    {"echo", V_echo, 0, {{"true", 1}}, {{"0", "found an integer, expected true or false"}}, {"return_full_text"}},
    {"exclude_input_from_output",
     V_echo,
     0,
     {{"true", 0}, {"false", 1}},
     {{"0", "found an integer, expected true or false"}},
     {NULL}},
    {"skip_special_tokens",
     V_skip_special,
     1,
     {{"false", 0}},
     {{"0", "found an integer, expected true or false"}},
     {NULL}},
    {"add_special_tokens",
     V_add_special_tokens,
     1,
     {{"false", 0}},
     {{"{}", "found an object, expected true or false"}},
     {NULL}},
    {"parse_special", V_parse_special, 1, {{"false", 0}}, {{"1", "found an integer, expected true or false"}}, {NULL}},
    {"stream", V_stream, 0, {{"true", 1}}, {{"\"yes\"", "found a string, expected true or false"}}, {"streaming"}},
    {"priority",
     V_priority,
     0,
     {{"-2147483648", -2147483648.0}, {"2147483647", 2147483647}},
     {{"2147483648", "found 2147483648, expected an integer in [-2147483648, 2147483647]"}},
     {NULL}},
    {"timeout_ms",
     V_timeout_ms,
     0,
     {{"1", 1}, {"2147483647", 2147483647}},
     {{"0", "found 0, expected an integer in [1, 2147483647]"}},
     {NULL}},
};
#define N_TABLE (sizeof table / sizeof table[0])

static void expect_number(const char *name, const char *value, enum number which, double want)
{
    struct trial t;
    char json[600];
    (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"%s\": %s}", name, value);
    double got = number_of(good(&t, json), which);
    if (!(got == want))
        print_error("%s: %.17g, expected %.17g\n", json, got, want);
    assert_true(got == want);
    close_trial(&t);
}

static void takes_each_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TABLE; i++) {
        struct trial t;
        assert_true(number_of(good(&t, "{\"prompt\": \"p\"}"), table[i].which) == table[i].missing);
        close_trial(&t);
        expect_number(table[i].name, "null", table[i].which, table[i].missing);
        for (int k = 0; k < 5 && table[i].accepted[k].json != NULL; k++) {
            const struct accepted *a = &table[i].accepted[k];
            expect_number(table[i].name, a->json, table[i].which, a->value);
            for (int alias = 0; table[i].alias[alias] != NULL; alias++)
                expect_number(table[i].alias[alias], a->json, table[i].which, a->value);
        }
    }
}

static void refuses_each_field(void **state)
{
    (void)state;
    char json[600], field[64];
    for (size_t i = 0; i < N_TABLE; i++)
        for (int k = 0; k < 6 && table[i].refused[k].json != NULL; k++) {
            const struct refused *r = &table[i].refused[k];
            (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"%s\": %s}", table[i].name, r->json);
            (void)snprintf(field, sizeof field, "%s", table[i].name);
            bad(json, 400, field, r->message);
            for (int alias = 0; table[i].alias[alias] != NULL; alias++) {
                (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"%s\": %s}", table[i].alias[alias], r->json);
                bad(json, 400, table[i].alias[alias], r->message);
            }
        }
}

/* Two names of one field, in either order, nested or not. */
static void refuses_two_names(void **state)
{
    (void)state;
    char json[600], message[200], field[64];
    int n = 0;
    for (size_t i = 0; i < N_TABLE; i++)
        for (int alias = 0; table[i].alias[alias] != NULL; alias++) {
            const char *value = table[i].accepted[0].json, *other = table[i].alias[alias], *name = table[i].name;
            value = strcmp(value, "null") == 0 ? "0" : value;
            (void)snprintf(json, sizeof json, "{\"%s\": %s, \"%s\": %s, \"prompt\": \"p\"}", name, value, other, value);
            (void)snprintf(message, sizeof message, "given twice: \"%s\" means the same", name);
            bad(json, 400, other, message);
            n++;
            if (strcmp(name, "stream") == 0)
                continue;
            (void)snprintf(json, sizeof json, "{\"%s\": %s, \"parameters\": {\"%s\": %s}, \"prompt\": \"p\"}", other,
                           value, name, value);
            (void)snprintf(message, sizeof message, "given twice: \"%s\" means the same", other);
            (void)snprintf(field, sizeof field, "parameters.%s", name);
            bad(json, 400, field, message);
        }
    assert_int_equal(n, 24);
}

/* docs/protocol.md says what we take. */
static void is_documented(void **state)
{
    (void)state;
    struct err e = {0};
    size_t bytes = 0;
    char name[80], *document = file_read("docs/protocol.md", 1 << 20, &bytes, &e);
    assert_non_null(document);
    for (size_t i = 0; i < N_TABLE; i++)
        for (int alias = -1; alias < 0 || table[i].alias[alias] != NULL; alias++) {
            (void)snprintf(name, sizeof name, "`%s`", alias < 0 ? table[i].name : table[i].alias[alias]);
            if (strstr(document, name) == NULL)
                print_error("docs/protocol.md does not have %s\n", name);
            assert_non_null(strstr(document, name));
        }
    free(document);
}

/* ---------------------------------------------------------------- fields that look at each other */

static void relates_fields(void **state)
{
    (void)state;
    struct trial t;
    struct protocol_generate *g = good(&t, "{\"prompt\": \"p\", \"do_sample\": false}");
    assert_true(g->rules.sampling.temperature == 0);
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"do_sample\": true}");
    assert_true(g->rules.sampling.temperature == 1);
    close_trial(&t);
    bad("{\"prompt\": \"p\", \"do_sample\": false, \"temperature\": 0.5}", 400, "do_sample",
        "found false beside a temperature of 0.5");
    bad("{\"prompt\": \"p\", \"do_sample\": true, \"temperature\": 0}", 400, "do_sample",
        "found true beside a temperature of 0");
    bad("{\"prompt\": \"p\", \"do_sample\": 1}", 400, "do_sample", "found an integer, expected true or false");
    g = good(&t, "{\"prompt\": \"p\", \"max_tokens\": 3, \"min_tokens\": 3, \"stop_token_ids\": [9]}");
    assert_int_equal(g->rules.sampling.n_eos, 3); /* min_tokens forbids them all */
    assert_int_equal(g->rules.n_stop_ids, 3);
    close_trial(&t);
    bad("{\"prompt\": \"p\", \"min_tokens\": 1, \"stop_token_ids\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}", 400,
        "stop_token_ids", "found 15 ids beside 2 that end a text, with min_tokens at most 16 together");
    bad("{\"prompt\": \"p\", \"stop_token_ids\": [5, 1000]}", 400, "stop_token_ids[1]",
        "found 1000, expected a token id in [0, 999]");
    bad("{\"prompt\": \"p\", \"eos_token_id\": -1}", 400, "eos_token_id[0]",
        "found -1, expected a token id in [0, 999]");
    bad("{\"prompt\": \"p\", \"stop\": [\"a\", 5]}", 400, "stop[1]", "found an integer, expected a string");
    bad("{\"prompt\": \"p\", \"logit_bias\": [[5, 1], [6]]}", 400, "logit_bias[1]", "expected [ID, BIAS]");
    g = good(&t, "{\"prompt\": \"p\", \"ignore_eos\": true, \"stop_token_ids\": [9]}");
    assert_int_equal(g->rules.n_stop_ids, 1);
    assert_int_equal(g->rules.stop_id[0], 9);
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"logprobs\": true, \"top_logprobs\": 7}");
    assert_int_equal(g->rules.sampling.n_top, 7);
    assert_false(g->rules.want_prompt_logprobs);
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"logprobs\": 5, \"echo\": true}");
    assert_true(g->rules.want_prompt_logprobs);
    assert_int_equal(g->rules.sampling.n_prompt_top, 5);
    close_trial(&t);
    bad("{\"prompt\": \"p\", \"logprobs\": 5, \"top_logprobs\": 5}", 400, "top_logprobs",
        "has no effect without \"logprobs\": true");
    bad("{\"prompt\": \"p\", \"echo\": true, \"exclude_input_from_output\": true}", 400, "exclude_input_from_output",
        "contradicts \"echo\"");
}

static void relates_candidates(void **state)
{
    (void)state;
    struct trial t;
    struct protocol_generate *g = good(&t, "{\"prompt\": \"p\", \"n\": 2, \"best_of\": 4}");
    assert_int_equal(g->search.n, 2);
    assert_int_equal(g->search.best_of, 4);
    close_trial(&t);
    bad("{\"prompt\": \"p\", \"n\": 4, \"best_of\": 2}", 400, "best_of", "found 2, expected an integer in [4, 128]");
    g = good(
        &t, "{\"prompt\": \"p\", \"num_beams\": 4, \"n\": 3, \"length_penalty\": -1.5, \"early_stopping\": \"never\"}");
    assert_int_equal(g->search.num_beams, 4);
    assert_true(g->search.beam.length_penalty == -1.5 && g->search.beam.early_stopping == EARLY_STOPPING_NEVER);
    assert_true(g->rules.sampling.temperature == 0);
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"use_beam_search\": true, \"n\": 2, \"best_of\": 4, \"early_stopping\": true}");
    assert_true(g->search.num_beams == 4 && g->search.n == 2 && g->search.best_of == 0);
    assert_int_equal(g->search.beam.early_stopping, EARLY_STOPPING_TRUE);
    close_trial(&t);
    bad("{\"prompt\": \"p\", \"num_beams\": 2, \"n\": 3}", 400, "n",
        "3 choices of 2 beams, expected no more than beams");
    bad("{\"prompt\": \"p\", \"num_beams\": 2, \"parameters\": {\"repeat_penalty\": 2}}", 400,
        "parameters.repeat_penalty", "not supported with beam search");
    bad("{\"prompt\": \"p\", \"num_beams\": 2, \"stop_sequences\": [\"x\"]}", 400, "stop_sequences",
        "not supported with beam search");
    bad("{\"prompt\": \"p\", \"num_beams\": 2, \"temperature\": 1}", 400, "temperature",
        "beams are not sampled: only temperature 0 is implemented with them");
    bad("{\"prompt\": \"p\", \"num_beams\": 2, \"do_sample\": true}", 400, "do_sample",
        "beams are not sampled: only temperature 0 is implemented with them");
    bad("{\"prompt\": \"p\", \"num_beams\": 2, \"best_of\": 2}", 400, "best_of",
        "not implemented with beams: \"num_beams\" are ranked anyway");
    bad("{\"prompt\": \"p\", \"num_beams\": 2, \"use_beam_search\": false}", 400, "use_beam_search",
        "found false beside 2 beams");
    bad("{\"prompt\": \"p\", \"stream\": true, \"best_of\": 2}", 400, "stream",
        "not implemented with best_of above n or beams: the best are known last");
    bad("{\"prompt\": [\"a\", \"b\", \"c\"], \"n\": 128, \"best_of\": 128, \"prompt\": 5}", 400, "prompt",
        "message: not valid JSON: line 1, column 62: duplicate object key near '\"prompt\"'");
    struct protocol_error error;
    struct protocol_message m;
    static const char stream[] = "{\"prompt\": \"p\", \"stream\": true, \"request_id\": \"x\"}";
    assert_int_equal(protocol_parse(&m, stream, sizeof stream - 1, &model, false, &error), -1);
    assert_string_equal(error.field, "stream");
    assert_string_equal(m.request_id, "x");
    protocol_message_close(&m);
}

/* ---------------------------------------------------------------- prompts and chats */

static void takes_prompts(void **state)
{
    (void)state;
    struct trial t;
    struct protocol_generate *g = good(&t, "{\"prompt\": \"a\\u0000b\"}");
    assert_int_equal(g->n_prompts, 1);
    assert_int_equal(g->prompt[0].bytes, 3);
    assert_memory_equal(g->prompt[0].text, "a\0b", 4);
    close_trial(&t);
    g = good(&t, "{\"inputs\": [\"x\", \"\"]}");
    assert_int_equal(g->n_prompts, 2);
    assert_string_equal(g->prompt[0].text, "x");
    assert_int_equal(g->prompt[1].bytes, 0);
    close_trial(&t);
    g = good(&t, "{\"input_ids\": [5, 999]}");
    assert_int_equal(g->n_prompts, 1);
    assert_null(g->prompt[0].text);
    assert_int_equal(g->prompt[0].n_ids, 2);
    assert_int_equal(g->prompt[0].id[1], 999);
    close_trial(&t);
    g = good(&t, "{\"text\": [[5], [6, 7]]}");
    assert_int_equal(g->n_prompts, 2);
    assert_int_equal(g->prompt[1].id[1], 7);
    close_trial(&t);
    g = good(&t,
             "{\"text_input\": \"z\", \"parameters\": {\"max_new_tokens\": 3}, \"sampling_params\": {\"top_k\": 2}}");
    assert_int_equal(g->rules.max_tokens, 3);
    assert_int_equal(g->rules.sampling.top_k, 2);
    close_trial(&t);
}

#define FORMS "a string, a list of strings, a list of token ids or a list of those"

static void refuses_prompts(void **state)
{
    (void)state;
    bad("{}", 400, "prompt", "missing: expected \"prompt\" or \"messages\"");
    bad("{\"prompt\": null}", 400, "prompt", "missing: expected \"prompt\" or \"messages\"");
    bad("{\"prompt\": 5}", 400, "prompt", "found an integer, expected " FORMS);
    bad("{\"inputs\": {}}", 400, "inputs", "found an object, expected " FORMS);
    bad("{\"prompt\": []}", 400, "prompt", "found an empty list, expected " FORMS);
    bad("{\"prompt\": [true]}", 400, "prompt[0]", "found a boolean, expected " FORMS);
    bad("{\"prompt\": [\"a\", 5]}", 400, "prompt[1]", "found an integer after a string, expected all alike");
    bad("{\"prompt\": [[1], \"a\"]}", 400, "prompt[1]", "found a string after an array, expected all alike");
    bad("{\"prompt\": [5, \"a\"]}", 400, "prompt[1]", "found a string, expected a token id in [0, 999]");
    bad("{\"prompt\": [5, 1000]}", 400, "prompt[1]", "found 1000, expected a token id in [0, 999]");
    bad("{\"prompt\": [-1]}", 400, "prompt[0]", "found -1, expected a token id in [0, 999]");
    bad("{\"prompt\": [1.5]}", 400, "prompt[0]", "found a real number, expected a token id in [0, 999]");
    bad("{\"prompt\": [[5], []]}", 400, "prompt[1]", "found no token ids, expected at least one");
    bad("{\"prompt\": [[5, 6], [7, null]]}", 400, "prompt[1][1]", "found null, expected a token id in [0, 999]");
    bad("{\"prompt\": \"a\", \"text\": \"b\"}", 400, "text", "given twice: \"prompt\" means the same");
    bad("{\"prompt\": \"a\", \"messages\": []}", 400, "messages", "given beside \"prompt\", expected one of them");
    bad("{\"prompt\": \"a\", \"add_generation_prompt\": true}", 400, "add_generation_prompt",
        "only chats (\"messages\") have it");
}

static void bounds_sequences(void **state)
{
    (void)state;
    char *json = malloc(1 << 16), *at = json + sprintf(json, "{\"n\": 128, \"prompt\": [\"a\"");
    for (int i = 0; i < 32; i++)
        at += sprintf(at, ", \"a\"");
    (void)sprintf(at, "]}");
    bad(json, 400, "prompt", "found 33 prompts of 128 sequences each, at most 4096 together");
    free(json);
}

static void takes_chats(void **state)
{
    (void)state;
    struct trial t;
    struct protocol_generate *g =
        good(&t, "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
                 "\"name\": null, \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                 "{\"text\": \"b\\u0000\", \"type\": \"text\"}]}]}");
    assert_null(g->prompt);
    assert_int_equal(g->n_prompts, 1);
    assert_int_equal(g->n_turns, 2);
    assert_string_equal(g->turn[0].role, "system");
    assert_int_equal(g->turn[1].bytes, 4);
    assert_memory_equal(g->turn[1].content, "a\nb\0", 5);
    assert_int_equal(g->rules.max_tokens, PROTOCOL_FILL);
    assert_true(g->add_generation_prompt && !g->parse_special && !g->add_special_tokens);
    close_trial(&t);
    g = good(&t, "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"add_generation_prompt\": false, "
                 "\"parse_special\": "
                 "true, \"max_tokens\": 4}");
    assert_true(!g->add_generation_prompt && g->parse_special && g->rules.max_tokens == 4);
    close_trial(&t);
}

static void refuses_chats(void **state)
{
    (void)state;
    static const char parts[] = "expected a list of {\"type\": \"text\", \"text\": a string}";
    char message[100];
    (void)snprintf(message, sizeof message, "found an array, %s", parts);
    bad("{\"messages\": []}", 400, "messages", "found an empty list, expected a list of {\"role\", \"content\"}");
    bad("{\"messages\": \"hi\"}", 400, "messages", "found a string, expected a list of {\"role\", \"content\"}");
    bad("{\"messages\": [5]}", 400, "messages[0]",
        "found an integer, expected an object with \"role\" and \"content\"");
    bad("{\"messages\": [{\"content\": \"a\"}]}", 400, "messages[0].role", "found nothing, expected a string");
    bad("{\"messages\": [{\"role\": \"user\"}]}", 400, "messages[0].content",
        "found nothing, expected a string or a list of text parts");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": null}]}", 400, "messages[0].content",
        "found null, expected a string or a list of text parts");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": \"x\"}]}]}", 400,
        "messages[0].content", message);
    bad("{\"messages\": [{\"role\": \"user\", \"content\": []}]}", 400, "messages[0].content", message);
    bad("{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": []}]}", 400,
        "messages[0].tool_calls", "not implemented");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"echo\": true}", 400, "echo",
        "not implemented for chats");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_special_tokens\": true}", 400,
        "add_special_tokens", "chats have the special tokens of their template");
}

/* ---------------------------------------------------------------- what is not a field of ours */

static void refuses_unknown_fields(void **state)
{
    (void)state;
    struct trial t;
    bad("{\"prompt\": \"p\", \"max_tokns\": 3}", 400, "max_tokns", "unknown field");
    bad("{\"prompt\": \"p\", \"bad_words\": [\"x\"]}", 400, "bad_words", "not implemented");
    bad("{\"prompt\": \"p\", \"tools\": []}", 400, "tools", "not implemented");
    bad("{\"prompt\": \"p\", \"no_repeat_ngram_size\": 3}", 400, "no_repeat_ngram_size",
        "not implemented: only 0 is accepted");
    bad("{\"prompt\": \"p\", \"typical_p\": \"1\"}", 400, "typical_p", "not implemented: only 1 is accepted");
    bad("{\"prompt\": \"p\", \"detokenize\": false}", 400, "detokenize", "not implemented: only true is accepted");
    bad("{\"prompt\": \"p\", \"details\": true}", 400, "details", "not implemented: only false is accepted");
    bad("{\"prompt\": \"p\", \"parameters\": {\"best\": 1}}", 400, "parameters.best", "unknown field");
    bad("{\"prompt\": \"p\", \"parameters\": {\"prompt\": 1}}", 400, "parameters.prompt",
        "belongs at the top of the message, not in \"parameters\"");
    bad("{\"prompt\": \"p\", \"parameters\": {\"parameters\": {}}}", 400, "parameters.parameters", "unknown field");
    bad("{\"prompt\": \"p\", \"parameters\": 7}", 400, "parameters", "found an integer, expected an object");
    bad("{\"prompt\": \"p\", \"a\\nb\\u001b[31m\": 1}", 400, "a?b?[31m", "unknown field");
    bad("{\"prompt\": \"p\", "
        "\"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
        "\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\": 1}",
        400,
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
        "\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
        "\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4?",
        "unknown field");
    (void)good(&t, "{\"prompt\": \"p\", \"typical_p\": 1.0, \"detokenize\": true, \"details\": false, \"tools\": null, "
                   "\"repeat_last_n\": -1, \"parameters\": null}");
    close_trial(&t);
}

/* Every field that others have and we do not: what asks for nothing is accepted, all else is refused by name. */
static void refuses_what_others_have(void **state)
{
    (void)state;
    static const struct {
        const char *name, *neutral, *other; /* neutral NULL: nothing but null */
    } fields[] = {{"typical_p", "1", "0.9"},
                  {"epsilon_cutoff", "0", "0.1"},
                  {"eta_cutoff", "0.0", "0.1"},
                  {"no_repeat_ngram_size", "0", "3"},
                  {"encoder_repetition_penalty", "1", "2"},
                  {"num_beam_groups", "1", "2"},
                  {"diversity_penalty", "0", "1"},
                  {"beam_search_diversity_rate", "0", "1"},
                  {"penalty_alpha", "0", "0.6"},
                  {"guidance_scale", "1", "2"},
                  {"min_length", "0", "5"},
                  {"repeat_last_n", "-1", "64"},
                  {"stream_interval", "1", "2"},
                  {"n_keep", "0", "5"},
                  {"id_slot", "-1", "0"},
                  {"t_max_predict_ms", "0", "9"},
                  {"logprob_start_len", "-1", "0"},
                  {"mirostat", "0", "2"},
                  {"dynatemp_range", "0", "1"},
                  {"xtc_probability", "0", "0.5"},
                  {"dry_multiplier", "0", "1"},
                  {"top_n_sigma", "-1", "1"},
                  {"spaces_between_special_tokens", "true", "false"},
                  {"detokenize", "true", "false"},
                  {"cache_prompt", "true", "false"},
                  {"return_tokens", "true", "false"},
                  {"details", "false", "true"},
                  {"decoder_input_details", "false", "true"},
                  {"output_scores", "false", "true"},
                  {"continue_final_message", "false", "true"},
                  {"max_length", NULL, "20"},
                  {"max_time", NULL, "1"},
                  {"truncate_prompt_tokens", NULL, "5"},
                  {"bad_words", NULL, "[]"},
                  {"response_format", NULL, "{}"},
                  {"grammar", NULL, "\"\""},
                  {"lora", NULL, "[]"},
                  {"stream_options", NULL, "{}"},
                  {"user", NULL, "\"me\""}};
    char json[200], message[100];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct trial t;
        const char *neutral = fields[i].neutral;
        (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"%s\": %s}", fields[i].name,
                       neutral != NULL ? neutral : "null");
        (void)good(&t, json);
        close_trial(&t);
        (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"%s\": %s}", fields[i].name, fields[i].other);
        (void)snprintf(message, sizeof message,
                       neutral != NULL ? "not implemented: only %s is accepted" : "not implemented",
                       neutral != NULL && strcmp(neutral, "0.0") == 0 ? "0" : neutral);
        bad(json, 400, fields[i].name, message);
    }
}

/* ---------------------------------------------------------------- the message as a whole */

static void takes_operations(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum protocol_op op;
    } ops[] = {{"{\"op\": \"health\"}", PROTOCOL_HEALTH},
               {"{\"op\": \"metrics\", \"request_id\": \"a\"}", PROTOCOL_METRICS},
               {"{\"op\": \"models\", \"protocol\": 1}", PROTOCOL_MODELS},
               {"{\"op\": \"drain\"}", PROTOCOL_DRAIN},
               {"{\"op\": \"shutdown\"}", PROTOCOL_SHUTDOWN},
               {"{\"op\": \"cancel\", \"rid\": \"a\"}", PROTOCOL_CANCEL},
               {"{\"op\": \"generate\", \"prompt\": \"x\"}", PROTOCOL_GENERATE},
               {"{\"op\": \"tokenize\", \"prompt\": \"x\", \"return_token_strs\": true}", PROTOCOL_TOKENIZE},
               {"{\"op\": \"detokenize\", \"tokens\": [1, 2], \"model\": \"demo\"}", PROTOCOL_DETOKENIZE}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct trial t;
        (void)good(&t, ops[i].json);
        assert_int_equal(t.m.op, ops[i].op);
        if (t.m.op == PROTOCOL_CANCEL || t.m.op == PROTOCOL_METRICS)
            assert_string_equal(t.m.request_id, "a");
        if (t.m.op == PROTOCOL_DETOKENIZE)
            assert_int_equal(t.m.ids.n, 2);
        if (t.m.op == PROTOCOL_TOKENIZE)
            assert_true(t.m.generate.return_token_strings && t.m.generate.n_prompts == 1);
        close_trial(&t);
    }
    bad("{\"op\": \"dance\"}", 400, "op",
        "found \"dance\", expected generate, cancel, health, metrics, models, tokenize, detokenize, drain or shutdown");
    bad("{\"op\": \"1234567890123456789012345678901234567890\"}", 400, "op",
        "found \"1234567890123456789012345678901234567890\", expected generate, cancel, health, metrics, models, "
        "tokenize, "
        "detokenize, drain or shutdown");
    bad("{\"op\": \"123456789012345678901234567890123456789\xc3\xa4\"}", 400, "op",
        "found \"123456789012345678901234567890123456789?\", expected generate, cancel, health, metrics, models, "
        "tokenize, "
        "detokenize, drain or shutdown");
    bad("{\"op\": 5}", 400, "op", "found an integer, expected a string");
    bad("{\"op\": \"health\", \"prompt\": \"x\"}", 400, "prompt", "op \"health\" has no such field");
    bad("{\"op\": \"health\", \"parameters\": {}}", 400, "parameters", "unknown field");
    bad("{\"op\": \"cancel\"}", 400, "request_id", "missing: which request is to end?");
    bad("{\"op\": \"tokenize\", \"prompt\": [\"x\"]}", 400, "prompt", "found an array, expected a string");
    bad("{\"op\": \"tokenize\", \"prompt\": \"x\", \"max_tokens\": 1}", 400, "max_tokens",
        "op \"tokenize\" has no such field");
    bad("{\"op\": \"detokenize\"}", 400, "token_ids", "missing: expected a list of token ids");
    bad("{\"op\": \"detokenize\", \"token_ids\": [1000]}", 400, "token_ids[0]",
        "found 1000, expected a token id in [0, 999]");
}

static void checks_the_envelope(void **state)
{
    (void)state;
    char id[200], json[400];
    struct trial t;
    bad("{\"prompt\": \"p\", \"protocol\": 2}", 400, "protocol", "found 2, expected an integer in [1, 1]");
    bad("{\"prompt\": \"p\", \"model\": \"other\"}", 404, "model", "found \"other\", this server has \"demo\"");
    bad("{\"prompt\": \"p\", \"model\": 5}", 400, "model", "found an integer, expected a string");
    bad("{\"prompt\": \"p\", \"request_id\": 5}", 400, "request_id",
        "found an integer, expected a string of 1 to 128 bytes without NUL");
    bad("{\"prompt\": \"p\", \"request_id\": \"\"}", 400, "request_id",
        "found a string, expected a string of 1 to 128 bytes without NUL");
    bad("{\"prompt\": \"p\", \"request_id\": \"a\\u0000\"}", 400, "request_id",
        "found a string, expected a string of 1 to 128 bytes without NUL");
    memset(id, 'x', sizeof id);
    id[129] = '\0';
    (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"request_id\": \"%s\"}", id);
    bad(json, 400, "request_id", "found a string, expected a string of 1 to 128 bytes without NUL");
    (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"request_id\": \"%s\"}", id + 1);
    (void)good(&t, json);
    assert_int_equal(strlen(t.m.request_id), 128);
    close_trial(&t);
    parse_bytes(&t, "{\"request_id\": \"me\", \"oops\": 1}", 31); /* a refusal knows whose it is */
    assert_string_equal(t.m.request_id, "me");
    assert_string_equal(t.error.field, "oops");
    close_trial(&t);
}

static void refuses_bad_json(void **state)
{
    (void)state;
    static const struct {
        const char *json, *field, *part;
    } cases[] = {{"", "", "line 1, column 0: '[' or '{' expected"},
                 {"[1]", "", "found an array, expected an object"},
                 {"{\"prompt\": \"p\"} x", "", "end of file expected near 'x'"},
                 {"{\"prompt\": \"a\xff\"}", "prompt", "unable to decode byte 0xff"},
                 {"{\"prompt\": \"\xed\xa0\x80\"}", "prompt", "unable to decode byte 0xed"},
                 {"{\"prompt\": \"\\ud800\"}", "prompt", "invalid Unicode"},
                 {"{\"prompt\": \"p\", \"seed\": 99999999999999999999}", "seed", "too big integer"},
                 {"{\"prompt\": \"p\", \"temperature\": 1e999}", "temperature", "real number overflow"},
                 {"{\"prompt\": \"p\", \"n\": 1, \"n\": 1}", "n", "duplicate object key"},
                 {"{\"prompt\": \"p\", \"parameters\": {\"n\": NaN}}", "parameters", "invalid token near 'NaN'"},
                 {"{\"prompt\" \"p\"}", "prompt", "':' expected"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trial t;
        parse_bytes(&t, cases[i].json, strlen(cases[i].json));
        if (t.error.code != 400 || strcmp(t.error.field, cases[i].field) != 0 ||
            strstr(t.error.message, cases[i].part) == NULL)
            print_error("%s: %d %s: %s\n", cases[i].json, t.error.code, t.error.field, t.error.message);
        assert_int_equal(t.error.code, 400);
        assert_string_equal(t.error.field, cases[i].field);
        assert_non_null(strstr(t.error.message, cases[i].part));
        close_trial(&t);
    }
}

/* `n` times a text between a beginning and an end. */
static char *repeated(const char *begin, const char *text, size_t n, const char *end)
{
    char *json = malloc(strlen(begin) + n * strlen(text) + strlen(end) + 1), *at = stpcpy(json, begin);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, text);
    (void)stpcpy(at, end);
    return json;
}

static void bounds_messages(void **state)
{
    (void)state;
    char *json = repeated("", "{\"a\":", 65, "1");
    bad(json, 413, "", "message: JSON nested 65 deep, at most 64 is accepted");
    free(json);
    json = repeated("", "[", 1 << 20, "");
    bad(json, 413, "", "message: JSON nested 1048576 deep, at most 64 is accepted");
    free(json);
    json = repeated("{\"prompt\": [", "[],", 1 << 16, "[]]}");
    bad(json, 413, "", "message: 65539 JSON arrays and objects, at most 65536 are accepted");
    free(json);
    json = repeated("{\"messages\": [{}", ",{\"a\":1,\"b\":1,\"c\":1}", 1 << 16, "]}");
    bad(json, 413, "", "message: 65539 JSON arrays and objects, at most 65536 are accepted");
    free(json);
    json = repeated("{\"messages\": [{}", ",{\"a\":1,\"b\":1,\"c\":1}", 50000, "]}");
    bad(json, 413, "", "message: 150001 members of JSON objects, at most 131072 are accepted");
    free(json);
    json = repeated("{\"prompt\": [", "1,", PROTOCOL_MAX_VALUES, "1]}");
    bad(json, 413, "", "message: 2097155 JSON values, at most 2097152 are accepted");
    free(json);
}

/* ---------------------------------------------------------------- to token ids */

static const char vocabulary[] =
    "{\"added_tokens\": [{\"id\": 4, \"content\": \"<c>\", \"special\": true, \"normalized\": false, \"lstrip\": "
    "false, "
    "\"rstrip\": false, \"single_word\": false}], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": "
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<c>\", \"type_id\": 0}}, "
    "{\"Sequence\": "
    "{\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": "
    "{\"id\": "
    "\"B\", \"type_id\": 1}}], \"special_tokens\": {\"<c>\": {\"id\": \"<c>\", \"ids\": [4], \"tokens\": [\"<c>\"]}}}, "
    "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"vocab\": {\"<\": 0, \"c\": 1, \">\": 2, \"a\": 3, \"<c>\": "
    "4}, "
    "\"merges\": []}}";

static void expect_ids(const struct tokenizer *t, const char *json, int prompt, int32_t bos, const char *want)
{
    struct trial trial;
    struct token_list ids = {0};
    struct protocol_error error = {0};
    char got[200] = "";
    size_t n = 0;
    const struct protocol_generate *g = good(&trial, json);
    if (protocol_encode(g, prompt, t, NULL, 5, bos, &ids, &error) != 0)
        n += (size_t)snprintf(got, sizeof got, "%d %s: %s", error.code, error.field, error.message);
    for (size_t i = 0; i < ids.n; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%d ", ids.id[i]);
    assert_string_equal(got, want);
    token_list_free(&ids);
    close_trial(&trial);
}

static void encodes_prompts(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    struct err e = {0};
    assert_int_equal(tokenizer_open_memory(&t, vocabulary, sizeof vocabulary - 1, "v", &e), 0);
    expect_ids(t, "{\"prompt\": \"a<c>\"}", 0, -1, "4 3 4 ");
    expect_ids(t, "{\"prompt\": \"a<c>\", \"parse_special\": false}", 0, -1, "4 3 0 1 2 ");
    expect_ids(t, "{\"prompt\": \"a<c>\", \"add_special_tokens\": false}", 0, -1, "3 4 ");
    expect_ids(t, "{\"prompt\": [\"a\", \"c\"]}", 1, -1, "4 1 ");
    expect_ids(t, "{\"prompt\": [3, 3]}", 0, -1, "3 3 ");
    expect_ids(t, "{\"prompt\": [[3], [1, 2]]}", 1, -1, "1 2 ");
    expect_ids(t, "{\"prompt\": \"\"}", 0, -1, "4 ");
    expect_ids(t, "{\"prompt\": \"\", \"add_special_tokens\": false}", 0, 4,
               "400 prompt: no token in it, expected at least one");
    expect_ids(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", 0, -1,
               "400 messages: this server knows no chat template for its checkpoint: render the chat into \"prompt\"");
    expect_ids(t, "{\"prompt\": [999]}", 0, -1,
               "500 prompt: the tokenizer gives id 999, the model has 5: they do not belong together999 ");
    tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_each_field),
        cmocka_unit_test(refuses_each_field),
        cmocka_unit_test(refuses_two_names),
        cmocka_unit_test(is_documented),
        cmocka_unit_test(relates_fields),
        cmocka_unit_test(relates_candidates),
        cmocka_unit_test(takes_prompts),
        cmocka_unit_test(refuses_prompts),
        cmocka_unit_test(bounds_sequences),
        cmocka_unit_test(takes_chats),
        cmocka_unit_test(refuses_chats),
        cmocka_unit_test(refuses_unknown_fields),
        cmocka_unit_test(refuses_what_others_have),
        cmocka_unit_test(takes_operations),
        cmocka_unit_test(checks_the_envelope),
        cmocka_unit_test(refuses_bad_json),
        cmocka_unit_test(bounds_messages),
        cmocka_unit_test(encodes_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
