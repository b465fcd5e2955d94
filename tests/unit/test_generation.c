/* tests/unit/test_generation.c - commands/generation.c: options override generation_config.json, which overrides
 * defaults. */
#include "tests/unit/unit.h"

#include "commands/generation.h"
#include "commands/options.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VOCAB 1000

struct trial {
    struct options o;
    struct request_rules rules;
    int32_t bos;
    struct err e;
};

static char dir[256];

static int make_dir(void **state)
{
    (void)state;
    files_make_dir(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    files_remove_dir(dir);
    return 0;
}

/* NULL: no such file. `line`: the options, split at spaces. */
static int run_trial(struct trial *t, const char *generation, const char *config, const char *line)
{
    static char text[2000];
    char path[300], *argv[60] = {"lockstep", "generate", "--model", dir};
    int argc = 4;
    *t = (struct trial){.bos = -77};
    const char *const name[] = {"generation_config.json", "config.json"}, *const content[] = {generation, config};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        (void)unlink(path);
        if (content[i] != NULL)
            files_write(dir, name[i], content[i], strlen(content[i]));
    }
    (void)snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    assert_int_equal(options_parse(&t->o, argc, argv, &t->e), 0);
    int rc = generation_rules(&t->rules, &t->bos, &t->o.generate, VOCAB, &t->e);
    assert_int_equal(rc, t->e.code == ERR_NONE ? 0 : -1);
    return rc;
}

static void good(struct trial *t, const char *generation, const char *config, const char *line)
{
    (void)run_trial(t, generation, config, line);
    expect_none(&t->e);
}

static void bad(const char *generation, const char *config, const char *line, enum err_code code, const char *text)
{
    struct trial t;
    if (run_trial(&t, generation, config, line) == 0)
        print_error("accepted: %s %s\n", generation, line);
    EXPECT_PARTS(&t.e, code, text);
}

static void defaults(void **state)
{
    (void)state;
    struct trial t;
    const struct sampling *s = &t.rules.sampling;
    for (int i = 0; i < 3; i++) {
        good(&t, i == 0 ? NULL : "{}", i < 2 ? NULL : "{}", "");
        assert_true(s->temperature == 0 && s->top_p == 1 && s->min_p == 0 && s->repetition_penalty == 1 &&
                    s->presence_penalty == 0 && s->frequency_penalty == 0);
        assert_int_equal(s->top_k, 0);
        assert_int_equal(s->min_tokens, 0);
        assert_int_equal(s->n_eos + s->n_bias + s->n_top + t.rules.n_stop_ids + (t.rules.stop != NULL), 0);
        assert_int_equal(t.rules.max_tokens, 128);
        assert_int_equal(t.bos, -1);
        assert_true(t.rules.skip_special);
        assert_false(t.rules.keep_stop || t.rules.want_logprobs || t.rules.ignore_eos);
    }
}

#define FILE_OF_VALUES                                                                              \
    "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 50, \"min_p\": 0.125, " \
    "\"repetition_penalty\": 1.25, \"max_new_tokens\": 33, \"min_new_tokens\": 2}"

static void file_over_defaults(void **state)
{
    (void)state;
    struct trial t;
    const struct sampling *s = &t.rules.sampling;
    good(&t, FILE_OF_VALUES, "{}", "");
    assert_true(s->temperature == 0.6f && s->top_p == 0.9f && s->min_p == 0.125f && s->repetition_penalty == 1.25f);
    assert_int_equal(s->top_k, 50);
    assert_int_equal(s->min_tokens, 2);
    assert_int_equal(t.rules.max_tokens, 33);
    good(&t, "{\"do_sample\": true}", "{}", ""); /* transformers' defaults */
    assert_true(s->temperature == 1 && s->top_p == 1);
    /* Without do_sample the file means greedy, whatever else it contains; penalties stay. */
    good(&t, "{\"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 50, \"min_p\": 0.1, \"repetition_penalty\": 1.25}",
         "{}", "");
    assert_true(s->temperature == 0 && s->top_p == 1 && s->min_p == 0 && s->repetition_penalty == 1.25f);
    assert_int_equal(s->top_k, 0);
}

static void options_over_file(void **state)
{
    (void)state;
    struct trial t;
    const struct sampling *s = &t.rules.sampling;
    good(&t, FILE_OF_VALUES, "{}",
         "--temperature 0.75 --top-p 0.5 --top-k 7 --min-p 0.25 --repetition-penalty 1.5 --max-tokens 9 --min-tokens 4 "
         "--presence-penalty 0.5 --frequency-penalty -0.25 --seed 11 --logprobs 3 --stop xx "
         "--include-stop-str-in-output "
         "--keep-special-tokens --logit-bias 5:-1.5,999:2");
    assert_true(s->temperature == 0.75f && s->top_p == 0.5f && s->min_p == 0.25f && s->repetition_penalty == 1.5f &&
                s->presence_penalty == 0.5f && s->frequency_penalty == -0.25f);
    assert_int_equal(s->top_k, 7);
    assert_int_equal(s->min_tokens, 4);
    assert_int_equal(s->seed, 11);
    assert_int_equal(s->n_top, 3);
    assert_int_equal(s->n_bias, 2);
    assert_int_equal(s->bias_id[1], 999);
    assert_true(s->bias[0] == -1.5f && s->bias[1] == 2);
    assert_int_equal(t.rules.max_tokens, 9);
    assert_string_equal(t.rules.stop->string[0].text, "xx");
    assert_true(t.rules.keep_stop && t.rules.want_logprobs && !t.rules.skip_special);
    generation_rules_close(&t.rules);
    good(&t, FILE_OF_VALUES, "{}", "--top-k 0 --logprobs 0");
    assert_int_equal(s->top_k, 0); /* off, although the file has 50 */
    assert_true(t.rules.want_logprobs);
    assert_int_equal(s->n_top, 0);
    good(&t, FILE_OF_VALUES, "{}", "--top-k -1");
    assert_int_equal(s->top_k, 0);
    good(&t, FILE_OF_VALUES, "{}", "--temperature 0"); /* the file's warpers are ignored */
    assert_true(s->temperature == 0);
}

static void special_ids(void **state)
{
    (void)state;
    struct trial t;
    good(&t, "{\"eos_token_id\": 7, \"bos_token_id\": 3}", "{\"eos_token_id\": 8, \"bos_token_id\": 4}", "");
    assert_int_equal(t.rules.sampling.n_eos, 1);
    assert_int_equal(t.rules.sampling.eos[0], 7);
    assert_int_equal(t.rules.n_stop_ids, 1);
    assert_int_equal(t.rules.stop_id[0], 7);
    assert_int_equal(t.bos, 3);
    good(&t, "{\"eos_token_id\": [5, 6, 1000, 999]}", "{\"eos_token_id\": 8, \"bos_token_id\": 4}", "");
    assert_int_equal(t.rules.n_stop_ids, 3); /* 1000 is outside the vocabulary */
    assert_int_equal(t.rules.stop_id[2], 999);
    assert_int_equal(t.bos, 4);
    good(&t, NULL, "{\"eos_token_id\": [8, 9], \"bos_token_id\": 1000}", "");
    assert_int_equal(t.rules.n_stop_ids, 2);
    assert_int_equal(t.bos, -1);
    good(&t, "{\"eos_token_id\": null}", "{\"eos_token_id\": 8}", "");
    assert_int_equal(t.rules.stop_id[0], 8);
    good(&t, NULL, "{\"eos_token_id\": null, \"text_config\": {\"eos_token_id\": [8, 9], \"bos_token_id\": 4}}", "");
    assert_int_equal(t.rules.sampling.n_eos, 2);
    assert_int_equal(t.rules.sampling.eos[1], 9);
    assert_int_equal(t.bos, 4);
    good(&t, NULL, "{\"eos_token_id\": 8, \"bos_token_id\": 3, \"text_config\": {\"eos_token_id\": 9}}", "");
    assert_int_equal(t.rules.sampling.n_eos, 1);
    assert_int_equal(t.rules.sampling.eos[0], 8);
    good(&t, "{\"eos_token_id\": 7}", "{}", "--stop-token-ids 1,2,999");
    assert_int_equal(t.rules.n_stop_ids, 4);
    assert_int_equal(t.rules.sampling.n_eos, 1);
    good(&t, "{\"eos_token_id\": 7}", "{}", "--stop-token-ids 1,2 --min-tokens 1"); /* forbids these as well */
    assert_int_equal(t.rules.sampling.n_eos, 3);
    good(&t, "{\"eos_token_id\": 7}", "{}", "--ignore-eos --stop-token-ids 1");
    assert_int_equal(t.rules.n_stop_ids, 1);
    assert_int_equal(t.rules.stop_id[0], 1);
    good(&t, "{\"eos_token_id\": 7}", "{}", "--ignore-eos");
    assert_int_equal(t.rules.n_stop_ids, 0);
}

static void many_ids(void **state)
{
    (void)state;
    struct trial t;
    good(&t, "{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}", "{}", "");
    assert_int_equal(t.rules.n_stop_ids, 16);
    bad("{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", "{}", "", ERR_UNSUPPORTED,
        "generation_config.json: more than 16 end-of-text ids");
    bad("{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}", "{}", "--stop-token-ids 20 --min-tokens 1",
        ERR_UNSUPPORTED, "--min-tokens with more than 16");
    char line[400] = "--stop-token-ids 0";
    for (int i = 1; i < 48; i++)
        (void)sprintf(line + strlen(line), ",%d", i);
    good(&t, "{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}", "{}", line);
    assert_int_equal(t.rules.n_stop_ids, 64);
    strcat(line, ",48");
    bad("{}", "{}", line, ERR_USAGE, "--stop-token-ids: more than 48 ids");
    char bias[4000] = "--logit-bias 0:1"; /* longer than run_trial() allows: parsed directly */
    good(&t, "{}", "{}", "");
    for (int i = 1; i < 300; i++)
        (void)sprintf(bias + strlen(bias), ",%d:1", i);
    t.o.generate.logit_bias = bias + strlen("--logit-bias ");
    assert_int_equal(generation_rules(&t.rules, &t.bos, &t.o.generate, VOCAB, &t.e), 0);
    assert_int_equal(t.rules.sampling.n_bias, 300);
    strcat(bias, ",300:1");
    assert_int_equal(generation_rules(&t.rules, &t.bos, &t.o.generate, VOCAB, &t.e), -1);
    expect_text(&t.e, ERR_USAGE, "--logit-bias: more than 300 entries");
}

static void refused_files(void **state)
{
    (void)state;
    bad("[]", "{}", "", ERR_INPUT, "generation_config.json: an array, expected an object");
    bad("{", "{}", "", ERR_INPUT, "generation_config.json: not valid JSON");
    bad("{}", "{", "", ERR_INPUT, "/config.json: not valid JSON");
    bad("{\"eos_token_id\": \"x\"}", "{}", "", ERR_INPUT,
        "\"eos_token_id\" has a string, expected an integer or a list");
    bad("{\"eos_token_id\": [1, null]}", "{}", "", ERR_INPUT, "\"eos_token_id\" has null");
    bad("{}", "{\"eos_token_id\": 1.5}", "", ERR_INPUT, "/config.json: \"eos_token_id\" has a real number");
    bad("{\"bos_token_id\": \"x\"}", "{}", "", ERR_INPUT, "\"bos_token_id\" is a string, expected an integer");
    bad("{\"do_sample\": 1}", "{}", "", ERR_INPUT, "\"do_sample\" is an integer, expected true or false");
    bad("{\"do_sample\": true, \"temperature\": -1}", "{}", "", ERR_INPUT,
        "\"temperature\" is -1, expected a number in [0, 100]");
    bad("{\"do_sample\": true, \"top_p\": 2}", "{}", "", ERR_INPUT, "\"top_p\" is 2, expected a number in [0, 1]");
    bad("{\"max_new_tokens\": 0}", "{}", "", ERR_INPUT,
        "\"max_new_tokens\" is 0, expected an integer in [1, 16777216]");
}

static void unsupported_keys_by_name(void **state)
{
    (void)state;
    static const char *const refused[] = {"\"num_beams\": 4",
                                          "\"no_repeat_ngram_size\": 3",
                                          "\"typical_p\": 0.5",
                                          "\"epsilon_cutoff\": 0.1",
                                          "\"eta_cutoff\": 0.1",
                                          "\"encoder_repetition_penalty\": 2",
                                          "\"penalty_alpha\": 0.6",
                                          "\"num_beam_groups\": 2",
                                          "\"guidance_scale\": 1.5",
                                          "\"bad_words_ids\": [[1]]",
                                          "\"suppress_tokens\": [1, 2]",
                                          "\"begin_suppress_tokens\": [1]",
                                          "\"forced_eos_token_id\": 5",
                                          "\"forced_bos_token_id\": 5",
                                          "\"stop_strings\": \"x\"",
                                          "\"sequence_bias\": {\"a\": 1}",
                                          "\"watermarking_config\": {}",
                                          "\"exponential_decay_length_penalty\": [1, 2]"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char file[200], key[60];
        (void)snprintf(file, sizeof file, "{%s}", refused[i]);
        (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(refused[i], ":"), refused[i]);
        bad(file, "{}", "", ERR_UNSUPPORTED, key);
    }
    bad("{\"num_beams\": 4}", "{}", "", ERR_UNSUPPORTED, "\"num_beams\" is 4, only 1 is supported");
    struct trial t;
    good(&t,
         "{\"num_beams\": 1, \"no_repeat_ngram_size\": 0, \"typical_p\": 1.0, \"epsilon_cutoff\": 0.0, "
         "\"guidance_scale\": "
         "null, \"bad_words_ids\": null, \"suppress_tokens\": [], \"use_cache\": true, \"num_return_sequences\": 1, "
         "\"transformers_version\": \"4.1\", \"pad_token_id\": 5, \"max_length\": 20}",
         "{}", "");
}

static void contradictions(void **state)
{
    (void)state;
    const char *no_effect = "--top-k, --top-p and --min-p have no effect at temperature 0: give --temperature";
    bad(NULL, "{}", "--top-p 0.9", ERR_USAGE, no_effect);
    bad(NULL, "{}", "--top-k 5", ERR_USAGE, no_effect);
    bad(NULL, "{}", "--min-p 0.1", ERR_USAGE, no_effect);
    bad(FILE_OF_VALUES, "{}", "--temperature 0 --top-k 5", ERR_USAGE, no_effect);
    struct trial t;
    good(&t, NULL, "{}", "--top-p 1 --top-k 0 --min-p 0");
    good(&t, NULL, "{}", "--temperature 0.5 --top-p 0.9");
    good(&t, FILE_OF_VALUES, "{}", "--top-p 0.8");
    bad(NULL, "{}", "--min-tokens 6 --max-tokens 5", ERR_USAGE, "--min-tokens 6 is more than --max-tokens 5");
    bad("{\"min_new_tokens\": 6}", "{}", "--max-tokens 5", ERR_USAGE, "--min-tokens 6 is more than --max-tokens 5");
    good(&t, NULL, "{}", "--min-tokens 5 --max-tokens 5");
    good(&t, NULL, "{}", "--stop a --stop \xc3\xa9");
    generation_rules_close(&t.rules);
    bad(NULL, "{}", "--stop a --stop \xc3", ERR_USAGE, "--stop: text 2 is not valid UTF-8");
}

static void lists_of_ids(void **state)
{
    (void)state;
    int32_t id[4];
    struct err e = {0};
    assert_int_equal(generation_parse_ids("1,0,999,5", id, 4, VOCAB, "x", &e), 4);
    assert_int_equal(id[2], 999);
    static const char *const wrong[] = {
        "", ",", "1,", ",1", "1,,2", "1;2", "1.5", "a", "-1", "1000", "1 2", "99999999999999999999", "0x10"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        e = (struct err){0};
        if (generation_parse_ids(wrong[i], id, 4, VOCAB, "stop-token-ids", &e) != -1)
            print_error("accepted: %s\n", wrong[i]);
        EXPECT_PARTS(&e, ERR_USAGE, "--stop-token-ids: found \"", "expected token ids in [0, 999] with commas between");
    }
    e = (struct err){0};
    assert_int_equal(generation_parse_ids("1,2,3,4,5", id, 4, VOCAB, "x", &e), -1);
    expect_text(&e, ERR_USAGE, "--x: more than 4 ids");
    static const char *const bias[] = {"5",     "5:",     "5:x",  "5:nan", "5:inf",
                                       "5:1e7", "1000:1", "-1:1", "5:1,",  "5:1 6:1"};
    for (size_t i = 0; i < sizeof bias / sizeof bias[0]; i++) {
        struct trial t;
        good(&t, NULL, NULL, "");
        t.o.generate.logit_bias = bias[i];
        (void)generation_rules(&t.rules, &t.bos, &t.o.generate, VOCAB, &t.e);
        EXPECT_PARTS(&t.e, ERR_USAGE, "--logit-bias: found \"", "expected ID:BIAS with ids in [0, 999]");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(file_over_defaults),
        cmocka_unit_test(options_over_file),
        cmocka_unit_test(special_ids),
        cmocka_unit_test(many_ids),
        cmocka_unit_test(refused_files),
        cmocka_unit_test(unsupported_keys_by_name),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(lists_of_ids),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
