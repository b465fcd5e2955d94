/* tests/unit/test_grammar_mask.c - text/grammar/: masks over the demo's vocabulary compared with every token tried by
 * itself; runs that follow their masks end in texts of the form. */
#include "tests/unit/grammar_masks.h"

#include "base/utf8.h"

/* A token stands for the bytes that it adds when decoded after another one. */
static void bytes_of_tokens(void **state)
{
    (void)state;
    int n_compared = 0;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        struct err e = {0};
        struct text_buffer bytes = {0};
        const int32_t pair[2] = {67, id}; /* "b" */
        char *text;
        size_t n;
        assert_int_equal(tokenizer_token_bytes(tokenizer, id, &bytes, &e), 0);
        assert_int_equal(tokenizer_decode(tokenizer, pair, 2, true, &text, &n, &e), 0);
        if (bytes.bytes > 0 && utf8_invalid_at(bytes.data, bytes.bytes) == bytes.bytes) {
            assert_int_equal(n, bytes.bytes + 1);
            assert_memory_equal(text + 1, bytes.data, bytes.bytes);
            n_compared++;
        }
        free(text);
        text_free(&bytes);
    }
    assert_true(n_compared > 1500);
}

static void masks_are_exact(void **state)
{
    (void)state;
    static const struct {
        enum form_kind kind;
        const char *source;
    } rows[] = {
        {FORM_SCHEMA, "{}"},
        {FORM_SCHEMA, "{\"type\":\"string\"}"},
        {FORM_SCHEMA, "{\"type\":\"string\",\"maxLength\":6}"},
        {FORM_SCHEMA, "{\"type\":\"string\",\"minLength\":9,\"maxLength\":40}"},
        {FORM_SCHEMA,
         "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4},{\"type\":\"string\",\"pattern\":\"^[a-z ]{3,30}$\"}]}"},
        {FORM_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^o]*$\",\"maxLength\":25}"},
        {FORM_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^o]*$\"}"},
        {FORM_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z_ ]+$\"}"},
        {FORM_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]*[0-9]\"}"},
        {FORM_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"once\":{\"type\":\"null\"},\"\\u00e9t\":{\"type\":\"null\"}},"
         "\"additionalProperties\":{\"type\":\"string\",\"pattern\":\"^\\\\S+@\\\\S+$\"}}"},
        {FORM_REGEX, "\"([a-z ]|[A-Z]\\\\.)*\""},
        {FORM_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"once\":{\"type\":\"integer\"},\"on\":{\"type\":\"string\"}},"
         "\"required\":[\"on\"],\"additionalProperties\":true}"},
        {FORM_SCHEMA,
         "{\"type\":\"array\",\"items\":{\"enum\":[\"little\",\"lit\",\"big\",7]},\"minItems\":2,\"maxItems\":5}"},
        {FORM_SCHEMA, "{\"type\":\"number\",\"minimum\":-20,\"maximum\":1000}"},
        {FORM_REGEX, "\"[A-Z][a-z]+( [a-z]+){2,6}\\\\.\""},
        {FORM_REGEX, "\"(.|\\n)*\""},
        {FORM_CHOICE, "[\"once upon\",\"once\",\"upon\"]"},
        /* Two rules of strings that remain at the same position. */
        {FORM_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"t\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"string\","
         "\"format\":\"email\"}]}},\"required\":[\"t\"]}"},
        {FORM_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"\u0436\":{\"type\":\"null\"},\"o\\\"o\":{\"type\":\"null\"}},"
         "\"additionalProperties\":{\"type\":\"object\",\"properties\":{\"lit\":{\"type\":\"null\"},\"little\":{"
         "\"type\":"
         "\"null\"}},\"additionalProperties\":true}}"},
    };
    uint64_t seed = 11;
    int n_complete = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct form *form;
        struct err e = {0};
        assert_int_equal(form_open_text(&form, rows[i].kind, rows[i].source, strlen(rows[i].source), &e), 0);
        for (int k = 0; k < 3; k++)
            n_complete += follow(form, 40, &seed, k == 0, END);
        form_close(form);
    }
    assert_true(n_complete > 15);
}

/* Checks the mask after a text. */
static void check_behind(const char *schema, const char *begin)
{
    static const int32_t end = END;
    struct grammar_run r;
    struct form *form;
    struct err e = {0};
    uint32_t *mask = calloc((size_t)lexicon->n_words, sizeof *mask);
    assert_int_equal(form_open_text(&form, FORM_SCHEMA, schema, strlen(schema), &e), 0);
    assert_int_equal(grammar_run_open(&r, &form->grammar, lexicon, &e), 0);
    for (size_t at = 0, bytes; at < strlen(begin); at += bytes) {
        int32_t id = lexicon_longest(lexicon, begin + at, strlen(begin) - at, &bytes);
        assert_int_equal(grammar_run_take(&r, id, &e), 0);
    }
    assert_int_equal(grammar_run_mask(&r, &end, 1, mask, &e), 0);
    check_mask(&r, mask, end);
    expect_none(&e);
    free(mask);
    grammar_run_close(&r);
    form_close(form);
}

/* A literal ends or escapes where the string beside it may not yet, or continues differently. */
static void literals_beside_strings(void **state)
{
    (void)state;
    check_behind("{\"anyOf\":[{\"type\":\"string\",\"minLength\":5},{\"const\":\"ab\"}]}", "\"ab");
    check_behind("{\"anyOf\":[{\"type\":\"string\",\"minLength\":5,\"maxLength\":3000},{\"const\":\"ab\"}]}", "\"ab");
    check_behind("{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3000},{\"enum\":[\"a\",\"abc\"]}]}", "\"abc");
    check_behind("{\"anyOf\":[{\"type\":\"string\",\"minLength\":2},{\"const\":\"ab\\\"c\"}]}", "\"ab");
    check_behind("{\"anyOf\":[{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}},"
                 "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}},\"required\":[\"ab\"],"
                 "\"additionalProperties\":false}]}",
                 "{\"ab");
}

/* Makes a vocabulary with many tokens of one kind: numbers of up to three digits, pairs of capital letters, triples of
 * small ones, pairs of Cyrillic letters (two bytes each), pairs of all four kinds, and the characters around values in
 * JSON. */
static size_t crowded_json(char *text)
{
    static const char *const alphabet[] = {"0123456789", "ABCDEFGHIJKL", "abcdefgh"};
    static const char *const json[] = {"\\\"", "\\\",", ",", "{", "}", "[",     "]",      ":",
                                       "\\\\", ".",     "-", "_", "@", "5\\\"", "AB\\\"", "a\\\""};
    size_t n =
        (size_t)sprintf(text, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
                              "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                              "false,\"use_regex\":false},\"post_processor\":null,\"decoder\":{\"type\":"
                              "\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\\u0120\":0");
    int id = 1;
    for (size_t i = 0; i < sizeof json / sizeof *json; i++)
        n += (size_t)sprintf(text + n, ",\"%s\":%d", json[i], id++);
    for (int k = 0; k < 3; k++)
        for (const char *a = alphabet[k]; *a != 0; a++)
            n += (size_t)sprintf(text + n, ",\"%c\":%d", *a, id++);
    for (int k = 0; k < 9; k++)
        for (const char *a = alphabet[k / 3]; *a != 0; a++)
            for (const char *b = alphabet[k % 3]; *b != 0; b++) {
                n += (size_t)sprintf(text + n, ",\"%c%c\":%d", *a, *b, id++);
                for (const char *c = alphabet[k / 3]; *c != 0; c++)
                    n += (size_t)sprintf(text + n, ",\"%c%c%c\":%d", *a, *b, *c, id++);
            }
    for (int a = 0; a < 29; a++) { /* the bytes d0 90 to d0 ac, each written as the letter of its code or 0x100 above */
        n += (size_t)sprintf(text + n, ",\"\\u00d0\\u%04x\":%d", a < 17 ? 0x132 + a : 0xa1 + a - 17, id++);
        n += (size_t)sprintf(text + n, ",\"a\\u00d0\\u%04x\":%d", a < 17 ? 0x132 + a : 0xa1 + a - 17, id++);
        for (int b = 0; b < 17; b++)
            n += (size_t)sprintf(text + n, ",\"\\u00d0\\u%04x\\u00d0\\u%04x%s\":%d", a < 17 ? 0x132 + a : 0xa1 + a - 17,
                                 0x132 + b, b % 3 == 0 ? "7" : "", id++);
    }
    n += (size_t)sprintf(text + n, ",\"\\u00d0\":%d,\"A\\u00d0\":%d", id, id + 1);
    return n + (size_t)sprintf(text + n, "}}}");
}

/* Chains of states over sets of characters, including all of other alphabets; states that any text keeps. */
static void chains_are_exact(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"type\":\"integer\"}",
        "{\"type\":\"number\",\"minimum\":-53,\"maximum\":76543}",
        "{\"type\":\"string\",\"pattern\":\"[A-Z]{2}$\"}",
        "{\"type\":\"string\",\"pattern\":\"a\"}",
        "{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":7}",
        "{\"type\":\"string\",\"pattern\":\"^[^ab]*$\"}",
        "{\"type\":\"string\",\"pattern\":\"^[^ab]{2,5}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^\\\\S+@\\\\S+$\"}",
        "{\"type\":\"string\",\"pattern\":\"^.{2,5}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]*[0-9]{1,9}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^[a-h0-9]{4,9}[A-Z]$\"}",
        "{\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9]{2,4}-[0-9A-L]{3,20}[.]$\"}",
        "{\"type\":\"string\",\"pattern\":\"^([a-h]|[0-9])+5?[A-L]{16}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^[\\\\w.-]+$\",\"minLength\":2,\"maxLength\":15}",
        "{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}",
        "{\"type\":\"string\",\"pattern\":\"[0-9a-h]{8}-[A-L]{3}\"}",
        "{\"type\":\"string\",\"pattern\":\"^ab|cd|A5$\"}",
        "{\"type\":\"object\",\"properties\":{\"abc\":{\"type\":\"string\"},\"AB\":{\"type\":\"string\"},"
        "\"ab\":{}},\"additionalProperties\":{\"type\":\"string\"}}",
        "{\"type\":\"object\",\"properties\":{\"a\\u0410b\":{},\"\\u0411\":{}},\"additionalProperties\":true}",
    };
    struct tokenizer *kept = tokenizer;
    struct lexicon_keeper crowd;
    const struct lexicon *demo = lexicon;
    struct err e = {0};
    uint64_t seed = 3;
    char *text = malloc(1 << 20);
    assert_int_equal(tokenizer_open_memory(&tokenizer, text, crowded_json(text), "crowded", &e), 0);
    lexicon_keeper_open(&crowd, tokenizer, tokenizer_vocab_size(tokenizer));
    lexicon = lexicon_keeper_get(&crowd, &e);
    expect_none(&e);
    assert_true(lexicon->n_tokens > 5000);
    n_full = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 6; k++) {
            struct form *form;
            assert_int_equal(form_open_text(&form, FORM_SCHEMA, rows[i], strlen(rows[i]), &e), 0);
            (void)follow(form, 12, &seed, true, -1);
            form_close(form);
        }
    assert_true(n_full > 100);
    lexicon_keeper_close(&crowd);
    tokenizer_close(&tokenizer);
    free(text);
    tokenizer = kept;
    lexicon = demo;
}

/* Expects this forced text after `begin`, as its tokens' texts with a bar after each. */
static void expect_forced(enum form_kind kind, const char *source, const char *begin, const char *expected)
{
    struct form *form;
    struct grammar_run r;
    struct err e = {0};
    struct text_buffer found = {0};
    assert_int_equal(form_open_text(&form, kind, source, strlen(source), &e), 0);
    assert_int_equal(grammar_run_open(&r, &form->grammar, lexicon, &e), 0);
    for (size_t n = strlen(begin), bytes; n > 0; n -= bytes, begin += bytes)
        assert_int_equal(grammar_run_take(&r, lexicon_longest(lexicon, begin, n, &bytes), &e), 0);
    for (int32_t token; (token = grammar_run_forced(&r)) >= 0;) {
        assert_int_equal(tokenizer_token_bytes(tokenizer, token, &found, &e), 0);
        assert_int_equal(text_append(&found, "|", 1, &e), 0);
        assert_int_equal(grammar_run_take(&r, token, &e), 0);
    }
    expect_none(&e);
    if (strcmp(found.data != NULL ? found.data : "", expected) != 0)
        print_error("%s: found %s, expected %s\n", source, found.data, expected);
    assert_string_equal(found.data != NULL ? found.data : "", expected);
    text_free(&found);
    grammar_run_close(&r);
    form_close(form);
}

static void forced_text(void **state)
{
    (void)state;
    expect_forced(FORM_CHOICE, "[\"Once upon a time\"]", "", "Once| upon| a| time|");
    expect_forced(FORM_CHOICE, "[\"Once upon a time\",\"Once upon a tree\"]", "", "Once| upon| a|");
    expect_forced(FORM_CHOICE, "[\"Once\",\"Once upon\"]", "", "Once|");
    expect_forced(FORM_CHOICE, "[\"\\u00e9t\\u00e9\",\"x\"]", "\xc3\xa9", "t|\xc3|\xa9|");
    expect_forced(FORM_SCHEMA,
                  "{\"type\":\"object\",\"properties\":{\"little_dragon\":{\"type\":\"integer\"}},\"required\":"
                  "[\"little_dragon\"],\"additionalProperties\":false}",
                  "{\"l", "it|tle|_|d|ra|gon|\"|:|");
}

/* Names that are not listed have the mask of free strings, except for names that begin like listed ones. */
static void names_are_near_strings(void **state)
{
    (void)state;
    static const char source[] = "{\"type\":\"object\",\"properties\":{\"once\":{\"type\":\"null\"},\"on\":{\"type\":"
                                 "\"null\"}},\"additionalProperties\":true}";
    struct form *form;
    struct err e = {0};
    struct grammar_run r;
    assert_int_equal(form_open_text(&form, FORM_SCHEMA, source, sizeof source - 1, &e), 0);
    assert_int_equal(grammar_run_open(&r, &form->grammar, lexicon, &e), 0);
    int at = r.now.state, free_name = -1;
    for (const char *c = "{\"on"; *c != '\0'; c++) {
        at = machine_next(r.machine, at, (unsigned char)*c);
        if (*c == '{')
            assert_true(lexicon_near(r.machine, at) < 0);
        else if (free_name < 0)
            free_name = lexicon_near(r.machine, at);
        else
            assert_int_equal(lexicon_near(r.machine, at), free_name);
    }
    assert_true(free_name >= 0);
    assert_int_equal(machine_next(r.machine, machine_next(r.machine, at, 0xd0), 0xb6), free_name);
    assert_true(lexicon_near(r.machine, free_name) < 0);
    grammar_run_close(&r);
    form_close(form);
}

/* No token has the form's characters. */
static void no_token_leads_on(void **state)
{
    (void)state;
    struct grammar_run r;
    struct err e = {0};
    struct form *form;
    uint32_t *mask = calloc((size_t)lexicon->n_words, sizeof *mask);
    struct lexicon small = *lexicon;
    small.walks = NULL;
    small.all.edge = small.other.edge = (int32_t[3]){0};
    small.n_tails = small.n_plain = 0;
    memset(mask, 0xff, (size_t)lexicon->n_words * sizeof *mask);
    assert_int_equal(form_open_text(&form, FORM_CHOICE, "[\"x\",\"y\"]", 9, &e), 0);
    assert_int_equal(grammar_run_open(&r, &form->grammar, &small, &e), 0);
    assert_int_equal(grammar_run_mask(&r, NULL, 0, mask, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "no token of the vocabulary continues");
    for (int i = 0; i < lexicon->n_words; i++)
        assert_int_equal(mask[i], 0);
    free(mask);
    grammar_run_close(&r);
    form_close(form);
}

enum { ATTEMPT = 8 }; /* tokens in an attempt */

/* Tries random tokens of the masks and records each: token[i] is from mask[i]; returns how many of the first tokens the
 * run accepted. */
static int attempt(struct grammar_run *r, int32_t *token, uint32_t *mask, uint64_t *seed)
{
    struct err e = {0};
    int n = 0;
    grammar_run_try(r);
    do {
        assert_int_equal(grammar_run_mask(r, &(int32_t){END}, 1, mask + n * lexicon->n_words, &e), 0);
        token[n] = choose_token(mask + n * lexicon->n_words, seed);
    } while (n + 1 < ATTEMPT && grammar_run_goes_on(r, token[n]) && ++n > 0);
    grammar_run_return(r);
    return n;
}

/* A forbidden token ends an attempt. */
static void check_forbidden(struct grammar_run *r, const uint32_t *mask, uint64_t *seed)
{
    int32_t id = random_below(seed, lexicon->n_tokens);
    if (has(mask, id))
        return;
    grammar_run_try(r);
    assert_false(grammar_run_goes_on(r, id));
    assert_false(grammar_run_goes_on(r, id));
    grammar_run_return(r);
}

/* The run continues with tokens that were tried before: the masks are those of the attempt, also if states were
 * forgotten meanwhile. */
static void attempts_tell_the_masks(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"type\":\"array\",\"minItems\":900,\"items\":{\"type\":\"object\",\"properties\":{\"little_name\":{\"type\":"
        "\"string\","
        "\"maxLength\":60},\"value\":{\"type\":\"number\",\"maximum\":99999}},\"required\":[\"little_name\",\"value\"],"
        "\"additionalProperties\":{\"type\":\"string\",\"pattern\":\"^([a-z]{2,7} ){1,6}end$\"}}}",
        "{\"type\":\"array\",\"items\":{\"enum\":[\"little\",\"lit\",\"once upon a time\"]},\"minItems\":70}",
    };
    uint64_t seed = 8;
    int n_tidied = 0, n_tried = 0, words = lexicon->n_words;
    uint32_t *tried = calloc((size_t)(ATTEMPT * words), sizeof *tried), *mask = calloc((size_t)words, sizeof *mask);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct form *form;
        struct grammar_run r;
        struct err e = {0};
        assert_int_equal(form_open_text(&form, FORM_SCHEMA, rows[i], strlen(rows[i]), &e), 0);
        assert_int_equal(grammar_run_open(&r, &form->grammar, lexicon, &e), 0);
        for (int k = 0, n = 1; k < 2500 && n > 0; k++) {
            int32_t token[ATTEMPT];
            n = attempt(&r, token, tried, &seed);
            for (int t = 0; t <= n; t++) {
                assert_int_equal(grammar_run_mask(&r, &(int32_t){END}, 1, mask, &e), 0);
                assert_memory_equal(mask, tried + t * words, (size_t)words * sizeof *mask);
                check_forbidden(&r, mask, &seed);
                if (t < n)
                    assert_int_equal(grammar_run_take(&r, token[t], &e), 0);
            }
            n_tried += n;
        }
        n_tidied += r.machine->n_tidied;
        grammar_run_close(&r);
        form_close(form);
    }
    print_message("%d tokens tried, states forgotten %d times\n", n_tried, n_tidied);
    assert_true(n_tried > 1000 && n_tidied >= 1);
    free(tried);
    free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_tokens),
        cmocka_unit_test(masks_are_exact),
        cmocka_unit_test(literals_beside_strings),
        cmocka_unit_test(chains_are_exact),
        cmocka_unit_test(forced_text),
        cmocka_unit_test(names_are_near_strings),
        cmocka_unit_test(no_token_leads_on),
        cmocka_unit_test(attempts_tell_the_masks),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
