/* tests/unit/test_tokenizer_parts.c - tokenizer_encode_parts: however a text is split, its ids are those of the whole;
 * and special tokens are recognised only within parts where they are allowed. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_PARTS 12

static struct tokenizer *open_vocabulary(const char *name)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    char path[300];
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "tests/unit/fixtures/tokenizer/%s.json", name);
    char *text = file_read(path, 16 << 20, &bytes, &e);
    assert_non_null(text);
    assert_int_equal(tokenizer_open_memory(&t, text, bytes, name, &e), 0);
    free(text);
    return t;
}

/* Makes up to 40 pieces of words, spaces and special tokens; returns the length. */
static size_t make_text(uint64_t *seed, char *text)
{
    static const char *const pieces[] = {"the",
                                         "Hello",
                                         " ",
                                         "  ",
                                         "\n",
                                         "\n\n",
                                         "'s",
                                         "123",
                                         "<s>",
                                         "</s>",
                                         "<|im_start|>",
                                         "<|im_end|>",
                                         "<|endoftext|>",
                                         "<|im_",
                                         "start|>",
                                         "\xc3\xa9",
                                         "e\xcc\x81",
                                         "\xe4\xbd\xa0",
                                         "\xf0\x9f\x98\x80",
                                         ".",
                                         "<",
                                         ">",
                                         "\xe2\x96\x81",
                                         "world"};
    char *at = text;
    for (int n = random_below(seed, 40); n > 0; n--)
        at = stpcpy(at, pieces[random_below(seed, sizeof pieces / sizeof pieces[0])]);
    *at = '\0';
    return (size_t)(at - text);
}

/* Splits at random between characters; every part's `plain` is the given value, or random for -1. */
static int cut(uint64_t *seed, const char *text, size_t bytes, int plain, struct text_part *part)
{
    int n = 1 + random_below(seed, MAX_PARTS);
    size_t start = 0;
    for (int i = 0; i < n; i++) {
        size_t stop = i + 1 == n ? bytes : start + (size_t)random_below(seed, (int)(bytes - start) + 1);
        while (stop < bytes && ((unsigned char)text[stop] & 0xc0) == 0x80)
            stop++;
        part[i] = (struct text_part){text + start, stop - start, plain < 0 ? random_below(seed, 2) == 0 : plain};
        start = stop;
    }
    return n;
}

static void expect_same(const struct token_list *a, const struct token_list *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        assert_int_equal(a->id[i], b->id[i]);
}

/* A text in parts of one kind gives the ids of tokenizer_encode for the whole. */
static void check_alike(const struct tokenizer *t, uint64_t *seed, const char *text, size_t bytes)
{
    struct text_part part[MAX_PARTS];
    struct err e = {0};
    for (int plain = 0; plain < 2; plain++) {
        struct token_list whole = {0}, parts = {0};
        int n = cut(seed, text, bytes, plain, part);
        assert_int_equal(tokenizer_encode(t, text, bytes, plain ? TOKENIZER_PLAIN : 0, &whole, &e), 0);
        assert_int_equal(tokenizer_encode_parts(t, part, (size_t)n, 0, &parts, &e), 0);
        expect_same(&whole, &parts);
        token_list_free(&whole);
        token_list_free(&parts);
    }
}

static int count_special(const struct tokenizer *t, const struct token_list *ids)
{
    int n = 0;
    for (size_t i = 0; i < ids->n; i++)
        n += tokenizer_is_special(t, ids->id[i]);
    return n;
}

/* Parts of both kinds give as many special tokens as lie within the runs of parts that may have them. */
static void check_mixed(const struct tokenizer *t, uint64_t *seed, const char *text, size_t bytes)
{
    struct text_part part[MAX_PARTS];
    struct token_list ids = {0}, run = {0};
    struct err e = {0};
    int n = cut(seed, text, bytes, -1, part), want = 0;
    assert_int_equal(tokenizer_encode_parts(t, part, (size_t)n, 0, &ids, &e), 0);
    for (int i = 0; i < n; i++) {
        const char *start = part[i].text;
        if (part[i].plain)
            continue;
        while (i + 1 < n && !part[i + 1].plain) /* here an empty plain part ends the run */
            i++;
        run.n = 0;
        assert_int_equal(tokenizer_encode(t, start, (size_t)(part[i].text + part[i].bytes - start), 0, &run, &e), 0);
        want += count_special(t, &run);
    }
    bool empty = false;
    for (int i = 0; i < n; i++)
        empty |= part[i].plain && part[i].bytes == 0;
    if (!empty)
        assert_int_equal(count_special(t, &ids), want);
    else
        assert_true(count_special(t, &ids) >= want);
    token_list_free(&ids);
    token_list_free(&run);
}

static void cuts_change_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2", "llama2", "llama3", "gpt2", "tekken", "metaspace_first"};
    static char text[4000];
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct tokenizer *t = open_vocabulary(names[k]);
        uint64_t seed = 1000 + k;
        for (int trial = 0; trial < 1000; trial++) {
            size_t bytes = make_text(&seed, text);
            check_alike(t, &seed, text, bytes);
            check_mixed(t, &seed, text, bytes);
        }
        tokenizer_close(&t);
    }
}

/* A longer token that a user's words would complete does not hide the template's shorter one. */
static void keeps_the_shorter_token(void **state)
{
    (void)state;
    static const char json[] = "{\"added_tokens\": [{\"id\": 3, \"content\": \"<a>\", \"special\": true, "
                               "\"normalized\": false, \"lstrip\": false, "
                               "\"rstrip\": false, \"single_word\": false}, {\"id\": 4, \"content\": \"<a>b\", "
                               "\"special\": true, \"normalized\": "
                               "false, \"lstrip\": false, \"rstrip\": false, \"single_word\": false}], \"normalizer\": "
                               "null, \"pre_tokenizer\": null, "
                               "\"post_processor\": null, \"decoder\": null, \"model\": {\"type\": \"BPE\", \"vocab\": "
                               "{\"a\": 0, \"b\": 1, \"<\": 2, "
                               "\"<a>\": 3, \"<a>b\": 4, \">\": 5}, \"merges\": []}}";
    struct tokenizer *t = NULL;
    struct err e = {0};
    struct token_list ids = {0};
    assert_int_equal(tokenizer_open_memory(&t, json, sizeof json - 1, "t", &e), 0);
    const struct text_part hidden[] = {{"<a>", 3, false}, {"b", 1, true}},
                           joined[] = {{"<a>", 3, false}, {"b", 1, false}};
    assert_int_equal(tokenizer_encode_parts(t, hidden, 2, 0, &ids, &e), 0);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 3);
    assert_int_equal(ids.id[1], 1);
    ids.n = 0;
    assert_int_equal(tokenizer_encode_parts(t, joined, 2, 0, &ids, &e), 0);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.id[0], 4);
    token_list_free(&ids);
    tokenizer_close(&t);
}

static void refuses_bad_parts(void **state)
{
    (void)state;
    struct tokenizer *t = open_vocabulary("qwen2");
    struct err e = {0};
    struct token_list ids = {0};
    const struct text_part bad[] = {{"a", 1, false}, {"b\xff", 2, true}};
    assert_int_equal(tokenizer_encode_parts(t, bad, 2, 0, &ids, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "byte 0xFF at offset 1");
    e = (struct err){0};
    const struct text_part half[] = {{"\xc3", 1, false}, {"\xa9", 1, false}}; /* a character across a boundary */
    assert_int_equal(tokenizer_encode_parts(t, half, 2, 0, &ids, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "byte 0xC3 at offset 0");
    e = (struct err){0};
    assert_int_equal(tokenizer_encode_parts(t, NULL, 0, 0, &ids, &e), 0);
    assert_int_equal(ids.n, 0);
    token_list_free(&ids);
    tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(keeps_the_shorter_token),
        cmocka_unit_test(refuses_bad_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
