/* tests/unit/test_protocol_fields.c - protocol/protocol_fields.c and _rules.c: every field of `generate`: type, range,
 * names, default and error text, and fields that depend on each other. */
#include "tests/unit/trial.h"

#include "base/json.h"
#include "text/stop.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- one table of all fields of `generate` */

/* Numbers, with their places in the parsed message. */
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
    X(n_stop, g->rules.stop != NULL ? g->rules.stop->n : 0)                                 \
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
    X(prediction, g->prediction != NULL ? (double)g->prediction_bytes : -1)                 \
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
     {{"0", "found 0, expected -1 (as many as fit) or at least 1, or \"echo\" or \"prompt_logprobs\" with it"},
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
    {"prediction",
     V_prediction,
     -1,
     {{"{\"type\": \"content\", \"content\": \"abc\"}", 3},
      {"{\"type\": \"content\", \"content\": \"\"}", 0},
      {"{\"type\": \"content\", \"content\": [{\"type\": \"text\", \"text\": \"ab\"}]}", 2},
      {"{\"type\": \"content\", \"content\": [{\"type\": \"text\", \"text\": \"ab\"}, {\"type\": \"text\", "
       "\"text\": \"c\"}]}",
       4}},
     {{"\"abc\"", "expected {\"type\": \"content\", \"content\": a string or a list of text parts}"},
      {"{\"content\": \"abc\"}", "expected {\"type\": \"content\", \"content\": a string or a list of text parts}"},
      {"{\"type\": \"content\", \"content\": 1}",
       "expected {\"type\": \"content\", \"content\": a string or a list of text parts}"},
      {"{\"type\": \"tokens\", \"content\": \"abc\"}",
       "expected {\"type\": \"content\", \"content\": a string or a list of text parts}"},
      {"{\"type\": \"content\", \"content\": \"abc\", \"more\": 1}",
       "expected {\"type\": \"content\", \"content\": a string or a list of text parts}"}},
     {NULL}},
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

/* Both names of a field, in either order, nested or not. */
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

/* docs/protocol.md lists the accepted names. */
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

/* ---------------------------------------------------------------- fields that depend on each other */

/* One byte too many, at the top and in a list; the most texts of the greatest length. */
static void stop_texts_are_bounded(void)
{
    struct trial t;
    char text[STOP_MAX_BYTES + 2], json[40000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"stop\": \"%s\"}", text);
    bad(json, 400, "stop", "found 1025 bytes, expected at most 1024");
    (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"stop_strings\": [\"a\", \"%s\"]}", text);
    bad(json, 400, "stop_strings[1]", "found 1025 bytes, expected at most 1024");
    text[STOP_MAX_BYTES] = '\0';
    int n = snprintf(json, sizeof json, "{\"prompt\": \"p\", \"stop\": [");
    for (int i = 0; i < STOP_MAX_STRINGS; i++)
        n += snprintf(json + n, sizeof json - (size_t)n, "%s\"%s\"", i > 0 ? ", " : "", text);
    (void)snprintf(json + n, sizeof json - (size_t)n, "]}");
    assert_int_equal(good(&t, json)->rules.stop->n, STOP_MAX_STRINGS);
    close_trial(&t);
}

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
    assert_int_equal(g->rules.sampling.n_eos, 3); /* min_tokens forbids all of them */
    assert_int_equal(g->rules.n_stop_ids, 3);
    close_trial(&t);
    bad("{\"prompt\": \"p\", \"min_tokens\": 1, \"stop_token_ids\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}", 400,
        "stop_token_ids", "found 15 ids beside 2 that end a text, with min_tokens at most 16 together");
    bad("{\"prompt\": \"p\", \"stop_token_ids\": [5, 1000]}", 400, "stop_token_ids[1]",
        "found 1000, expected a token id in [0, 999]");
    bad("{\"prompt\": \"p\", \"eos_token_id\": -1}", 400, "eos_token_id[0]",
        "found -1, expected a token id in [0, 999]");
    stop_texts_are_bounded();
    bad("{\"prompt\": \"p\", \"stop\": [\"a\", 5]}", 400, "stop[1]", "found an integer, expected a string");
    bad("{\"prompt\": \"p\", \"logit_bias\": [[5, 1], [6]]}", 400, "logit_bias[1]", "expected [ID, BIAS]");
    g = good(&t, "{\"prompt\": \"p\", \"ignore_eos\": true, \"stop_token_ids\": [9]}");
    assert_int_equal(g->rules.n_stop_ids, 1);
    assert_int_equal(g->rules.stop_id[0], 9);
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"parameters\": {\"max_new_tokens\": 7}}");
    assert_string_equal(g->limit_field, "parameters.max_new_tokens");
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\"}");
    assert_string_equal(g->limit_field, "max_tokens");
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"logprobs\": true, \"top_logprobs\": 7}");
    assert_int_equal(g->rules.sampling.n_top, 7);
    assert_false(g->rules.want_prompt_logprobs);
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"logprobs\": false, \"top_logprobs\": 0}");
    assert_false(g->rules.want_logprobs);
    close_trial(&t);
    g = good(&t, "{\"prompt\": \"p\", \"max_tokens\": 0, \"prompt_logprobs\": 0}");
    assert_true(g->prompt_alone && g->rules.max_tokens == 1);
    close_trial(&t);
    g = good(&t, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"continue_final_message\": true, "
                 "\"return_token_ids\": true}");
    assert_true(g->chat.continue_last && !g->chat.add_generation_prompt && g->return_ids);
    close_trial(&t);
    g = good(&t, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"continue_final_message\": false}");
    assert_true(!g->chat.continue_last && g->chat.add_generation_prompt && !g->return_ids);
    close_trial(&t);
    bad("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"continue_final_message\": true, "
        "\"add_generation_prompt\": true}",
        400, "continue_final_message", "contradicts \"add_generation_prompt\": true");
    bad("{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}], "
        "\"continue_final_message\": true}",
        400, "messages[0].content", "found nothing, expected a text to continue");
    bad("{\"prompt\": \"p\", \"continue_final_message\": false}", 400, "continue_final_message",
        "only chats (\"messages\") have it");
    bad("{\"prompt\": \"p\", \"max_tokens\": 0, \"echo\": true, \"stream\": true}", 400, "max_tokens",
        "found 0, expected at least 1 with \"stream\"");
    bad("{\"prompt\": \"p\", \"max_tokens\": 0, \"echo\": true, \"num_beams\": 2}", 400, "max_tokens",
        "found 0, expected at least 1 with beams");
    bad("{\"prompt\": \"p\", \"max_tokens\": 0, \"echo\": true, \"min_tokens\": 1}", 400, "min_tokens",
        "found 1, expected an integer in [0, 0]");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_each_field), cmocka_unit_test(refuses_each_field), cmocka_unit_test(refuses_two_names),
        cmocka_unit_test(is_documented),    cmocka_unit_test(relates_fields),     cmocka_unit_test(relates_candidates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
