/* tests/unit/test_tokenizer.c - the tokenizer compared with the reference library (tokenizers 0.23). Every pipeline of
 * fixtures/tokenizer: 20,000 seeded random strings, encoded, decoded, whole and streamed, compared by digests per block
 * of 100; the hard cases id by id. Then cases that could take too much time or memory. make_tokenizer_fixtures.py wrote
 * the expectations and has the same generator. Runs in the repository root. */
#include "base/err.h"
#include "base/json.h"
#include "tests/support/digest.h"
#include "tests/support/process.h"
#include "tests/unit/fixtures/tokenizer/alphabet.h"
#include "text/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define FIXTURES   "tests/unit/fixtures/tokenizer/"
#define BLOCK      100
#define BLOCKS     200
#define TEXT_BYTES 8192

static const char *const pipelines[] = {"gpt2",
                                        "gpt2_prefix",
                                        "llama3",
                                        "qwen2",
                                        "neox",
                                        "o200k",
                                        "tekken",
                                        "bloom",
                                        "falcon",
                                        "starcoder",
                                        "deepseek",
                                        "kimi",
                                        "deepseek_old",
                                        "flags",
                                        "llama2",
                                        "split_removed",
                                        "split_previous",
                                        "llama2_flags",
                                        "gemma",
                                        "split_inverted",
                                        "metaspace_first",
                                        "no_decoder",
                                        "some_bytes",
                                        "metaspace_never",
                                        "gpt2_files",
                                        "some_bytes_split",
                                        "metaspace_always"};
#define N_PIPELINES (sizeof pipelines / sizeof pipelines[0])

struct random { /* splitmix64 */
    uint64_t state;
};

static struct random random_start(uint64_t seed, uint64_t index)
{
    return (struct random){seed * 0x9e3779b97f4a7c15u + index * 0xd1b54a32d192ed03u};
}

static uint64_t random_below(struct random *r, uint64_t n)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((z ^ z >> 31) >> 11) % n;
}

struct text {
    char data[TEXT_BYTES];
    size_t bytes;
};

static void add_text(struct text *t, const char *data, size_t bytes)
{
    assert_true(t->bytes + bytes < sizeof t->data);
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
}

static void add_char(struct text *t, unsigned c)
{
    char u[4];
    if (c >= 0xd800 && c < 0xe000)
        c = 0xfffd;
    if (c < 0x80) {
        u[0] = (char)c;
        add_text(t, u, 1);
        return;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        u[i] = (char)(0x80 | (c & 0x3f));
    u[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    add_text(t, u, n);
}

static void random_string(struct text *t, uint64_t seed, uint64_t index)
{
    struct random r = random_start(seed, index);
    t->bytes = 0;
    for (uint64_t parts = 1 + random_below(&r, 10); parts > 0; parts--) {
        uint64_t kind = random_below(&r, 8), repeat = 1;
        if (kind < 6) {
            size_t w = random_below(&r, sizeof words / sizeof words[0]);
            if (kind == 4)
                repeat = 1 + random_below(&r, 5);
            if (kind == 5)
                add_text(t, " ", 1);
            for (; repeat > 0; repeat--)
                add_text(t, words[w].text, words[w].bytes);
            continue;
        }
        size_t k = random_below(&r, sizeof ranges / sizeof ranges[0]);
        for (repeat = 1 + random_below(&r, 6); repeat > 0; repeat--)
            add_char(t, (unsigned)(ranges[k].low + random_below(&r, (uint64_t)(ranges[k].high - ranges[k].low + 1))));
    }
}

static size_t random_ids(int32_t *id, uint64_t seed, uint64_t index, int32_t n_ids)
{
    struct random r = random_start(seed, index);
    size_t n = 1 + random_below(&r, 14);
    for (size_t i = 0; i < n; i++)
        id[i] = random_below(&r, 2) ? (int32_t)random_below(&r, n_ids < 300 ? (uint64_t)n_ids : 300)
                                    : (int32_t)random_below(&r, (uint64_t)n_ids + 8);
    return n;
}

static struct tokenizer *open_fixture(const char *name)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    char path[256];
    (void)snprintf(path, sizeof path, FIXTURES "%s.json", name);
    if (strcmp(name, "gpt2_files") == 0) {
        (void)tokenizer_open(&t, FIXTURES "gpt2_files", &e);
    } else {
        size_t bytes = 0;
        char *text = file_read(path, 1 << 20, &bytes, &e);
        if (text != NULL)
            (void)tokenizer_open_memory(&t, text, bytes, path, &e);
        free(text);
    }
    assert_string_equal(e.text, "");
    assert_non_null(t);
    return t;
}

/* Appends the streamed text of ids to t. */
static void stream(const struct tokenizer *tok, const int32_t *id, size_t n, bool skip, struct text *t)
{
    struct detokenizer *d = NULL;
    struct err e = {0};
    const char *part;
    size_t bytes;
    assert_int_equal(detokenizer_open(&d, tok, skip, &e), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(detokenizer_push(d, id[i], &part, &bytes, &e), 0);
        add_text(t, part, bytes);
    }
    assert_int_equal(detokenizer_finish(d, &part, &bytes, &e), 0);
    add_text(t, part, bytes);
    detokenizer_close(&d);
}

/* Adds one random string and one list of random ids to the four digests of their block. */
static void digest_one(const struct tokenizer *t, uint64_t i, uint64_t *h, struct text *text, struct token_list *ids)
{
    static struct text streamed;
    struct err e = {0};
    const int32_t separator = -1;
    char *decoded = NULL;
    size_t bytes = 0;
    bool skip = i % 3 == 0;
    random_string(text, 1, i);
    ids->n = 0;
    assert_int_equal(tokenizer_encode(t, text->data, text->bytes,
                                      (i % 2 == 1 ? TOKENIZER_ADD_SPECIAL : 0u) | (i % 5 == 0 ? TOKENIZER_PLAIN : 0u),
                                      ids, &e),
                     0);
    h[0] = digest_add(digest_add(h[0], ids->id, ids->n * sizeof *ids->id), &separator, sizeof separator);
    assert_int_equal(tokenizer_decode(t, ids->id, ids->n, skip, &decoded, &bytes, &e), 0);
    h[1] = digest_add(digest_add(h[1], decoded, bytes), "\xff", 1);
    streamed.bytes = 0;
    stream(t, ids->id, ids->n, skip, &streamed); /* well-formed ids: streamed and whole are the same bytes */
    assert_int_equal(streamed.bytes, bytes);
    assert_memory_equal(streamed.data, decoded, bytes);
    free(decoded);

    int32_t id[16];
    size_t n = random_ids(id, 2, i, tokenizer_vocab_size(t));
    assert_int_equal(tokenizer_decode(t, id, n, skip, &decoded, &bytes, &e), 0);
    h[2] = digest_add(digest_add(h[2], decoded, bytes), "\xff", 1);
    free(decoded);
    streamed.bytes = 0;
    stream(t, id, n, skip, &streamed);
    h[3] = digest_add(digest_add(h[3], streamed.data, streamed.bytes), "\xff", 1);
}

static void test_digests(void **state)
{
    const char *name = *state;
    static struct text text;
    struct token_list ids = {0};
    struct tokenizer *t = open_fixture(name);
    char path[256];
    (void)snprintf(path, sizeof path, FIXTURES "%s.digests", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (uint64_t block = 0; block < BLOCKS; block++) {
        uint64_t want[4], h[4] = {DIGEST_BEGIN, DIGEST_BEGIN, DIGEST_BEGIN, DIGEST_BEGIN};
        assert_int_equal(fscanf(f, "%lx %lx %lx %lx", &want[0], &want[1], &want[2], &want[3]), 4);
        if (process_sanitized() && block % 5 != 0) /* a fifth covers every path */
            continue;
        for (uint64_t i = block * BLOCK; i < (block + 1) * BLOCK; i++)
            digest_one(t, i, h, &text, &ids);
        for (int k = 0; k < 4; k++)
            if (h[k] != want[k])
                fail_msg("%s: block %lu (strings %lu-%lu), %s: digest %016lx, expected %016lx", name, block,
                         block * BLOCK, block * BLOCK + BLOCK - 1,
                         k == 0   ? "encode"
                         : k == 1 ? "decode"
                         : k == 2 ? "decode of random ids"
                                  : "stream of random ids",
                         h[k], want[k]);
    }
    (void)fclose(f);
    token_list_free(&ids);
    tokenizer_close(&t);
}

static void check_ids(const struct tokenizer *t, const json_t *text, const json_t *want, unsigned flags)
{
    struct err e = {0};
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids, &e), 0);
    bool same = ids.n == json_array_size(want);
    for (size_t i = 0; same && i < ids.n; i++)
        same = ids.id[i] == json_integer_value(json_array_get(want, i));
    if (!same) {
        char *expected = json_dumps(want, JSON_COMPACT);
        print_message("text \"%s\", flags %u, expected %s, got", json_string_value(text), flags, expected);
        for (size_t i = 0; i < ids.n; i++)
            print_message(" %d", ids.id[i]);
        fail_msg("\nother ids than the reference library's");
    }
    token_list_free(&ids);
}

static void test_cases(void **state)
{
    const char *name = *state;
    struct tokenizer *t = open_fixture(name);
    struct err e = {0};
    char path[256];
    (void)snprintf(path, sizeof path, FIXTURES "%s.cases.json", name);
    json_t *cases = json_read_file(path, 1 << 20, &e);
    assert_true(json_array_size(cases) > 50);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *text = json_object_get(c, "text"),
                     *want = json_object_get(c, "ids"), *decoded = json_object_get(c, "decoded");
        check_ids(t, text, want, 0);
        if (json_object_get(c, "special") != NULL)
            check_ids(t, text, json_object_get(c, "special"), TOKENIZER_ADD_SPECIAL);
        if (json_object_get(c, "plain") != NULL)
            check_ids(t, text, json_object_get(c, "plain"), TOKENIZER_PLAIN);
        int32_t id[2048];
        size_t n = json_array_size(want), bytes = 0;
        char *got = NULL;
        assert_true(n <= 2048);
        for (size_t k = 0; k < n; k++)
            id[k] = (int32_t)json_integer_value(json_array_get(want, k));
        assert_int_equal(tokenizer_decode(t, id, n, false, &got, &bytes, &e), 0);
        assert_int_equal(bytes, json_string_length(decoded));
        assert_memory_equal(got, json_string_value(decoded), bytes);
        free(got);
    }
    json_decref(cases);
    tokenizer_close(&t);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* the machine may be busy with other things */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A quarter of a megabyte of one repeated text, or a tenth of that under sanitizers, on every pipeline, each in less
 * than half a second. */
static void check_repeated(const char *unit, size_t unit_bytes)
{
    size_t bytes = (process_sanitized() ? 25000 : 250000) / unit_bytes * unit_bytes;
    char *text = malloc(bytes);
    double worst = 0;
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = unit[i % unit_bytes];
    for (size_t p = 0; p < N_PIPELINES; p++) {
        struct tokenizer *t = open_fixture(pipelines[p]);
        struct token_list ids = {0};
        struct err e = {0};
        double start = now();
        assert_int_equal(tokenizer_encode(t, text, bytes, 0, &ids, &e), 0);
        double seconds = now() - start;
        assert_true(ids.n > 0 || unit[0] != 'a'); /* a pipeline may drop unknown characters */
        worst = seconds > worst ? seconds : worst;
        if (seconds > 0.5)
            fail_msg("%s: a text of \"%s\" took %.2f s", pipelines[p], unit, seconds);
        token_list_free(&ids);
        tokenizer_close(&t);
    }
    print_message("%zu bytes of %02x: at most %.3f s\n", bytes, (unsigned char)unit[0], worst);
    free(text);
}

static void test_repeated(void **state)
{
    (void)state;
    check_repeated("a", 1);
    check_repeated(" ", 1);
    check_repeated("7", 1);
    check_repeated("\xe4\xb8\xad", 3);
    check_repeated("\xcc\x81\xcc\x96", 4); /* marks in the wrong order: a quadratic sort would not end */
    check_repeated("\n ", 2);
    check_repeated("A", 1);
    check_repeated("<", 1);
}

/* Returns megabytes per second for texts of this length; the best of three. */
static double rate_of(const struct tokenizer *t, const char *text, size_t all, size_t bytes)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        struct token_list ids = {0};
        struct err e = {0};
        double start = now();
        for (size_t at = 0; at < all; at += bytes) {
            ids.n = 0;
            assert_int_equal(tokenizer_encode(t, text + at, bytes, 0, &ids, &e), 0);
        }
        double rate = 1e-6 * (double)all / (now() - start);
        best = rate > best ? rate : best;
        token_list_free(&ids);
    }
    return best;
}

/* SentencePiece-style: the whole text is one word, whose length must not make it slower. A single queue of all its
 * merges made a megabyte a tenth as fast as 100 bytes. */
static void test_long_word(void **state)
{
    (void)state;
    static const char text[] = "There was an old house at the end of the road, and nobody had lived in it for years. ";
    static const size_t sizes[] = {100, 10000, 1000000};
    struct tokenizer *t = open_fixture("llama2");
    char *all = malloc(1000000);
    double rate[3];
    assert_non_null(all);
    for (size_t i = 0; i < 1000000; i++)
        all[i] = text[i % (sizeof text - 1)];
    for (int i = 0; i < 3; i++) {
        rate[i] = rate_of(t, all, 1000000, sizes[i]);
        print_message("texts of %zu B: %.1f MB/s\n", sizes[i], rate[i]);
    }
    assert_true(rate[2] > rate[0] / (process_sanitized() ? 20 : 2)); /* sanitizers slow down allocations */
    free(all);
    tokenizer_close(&t);
}

static void test_empty_and_invalid(void **state)
{
    (void)state;
    struct tokenizer *t = open_fixture("llama3");
    struct token_list ids = {0};
    struct err e = {0};
    assert_int_equal(tokenizer_encode(t, "", 0, 0, &ids, &e), 0);
    assert_int_equal(ids.n, 0);
    assert_int_equal(tokenizer_encode(t, "", 0, TOKENIZER_ADD_SPECIAL, &ids, &e), 0);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.id[0], tokenizer_find(t, "<|begin_of_text|>", 17));
    assert_true(tokenizer_is_special(t, ids.id[0]));
    static const struct {
        const char *text;
        size_t bytes, at;
    } bad[] = {{"abc\x80", 4, 3},    {"\xc0\x80", 2, 0},     {"a\xed\xa0\x80", 4, 1}, {"\xf4\x90\x80\x80", 4, 0},
               {"ab\xe4\xbd", 4, 2}, {"\xe0\x9f\x80", 3, 0}, {"\xff", 1, 0},          {"\xf0\x9f\x98\x80\xf8", 5, 4}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char at[32];
        e = (struct err){0};
        assert_int_equal(tokenizer_encode(t, bad[i].text, bad[i].bytes, 0, &ids, &e), -1);
        assert_int_equal(e.code, ERR_INPUT);
        (void)snprintf(at, sizeof at, "at offset %zu", bad[i].at);
        assert_non_null(strstr(e.text, at));
        assert_int_equal(ids.n, 1);
    }
    token_list_free(&ids);
    tokenizer_close(&t);
}

static void check_stream(const char *fixture, const char *const *tokens, const char *const *parts)
{
    struct tokenizer *t = open_fixture(fixture);
    struct detokenizer *d = NULL;
    struct err e = {0};
    const char *part;
    size_t bytes, i;
    assert_int_equal(detokenizer_open(&d, t, false, &e), 0);
    for (int round = 0; round < 2; round++) { /* finish resets it */
        for (i = 0; tokens[i] != NULL; i++) {
            int32_t id = tokenizer_find(t, tokens[i], strlen(tokens[i]));
            assert_true(id >= 0);
            assert_int_equal(detokenizer_push(d, id, &part, &bytes, &e), 0);
            assert_int_equal(bytes, strlen(parts[i]));
            assert_memory_equal(part, parts[i], bytes);
        }
        assert_int_equal(detokenizer_finish(d, &part, &bytes, &e), 0);
        assert_int_equal(bytes, strlen(parts[i]));
        assert_memory_equal(part, parts[i], bytes);
    }
    detokenizer_close(&d);
    tokenizer_close(&t);
}

/* Text is passed on at once, except for unfinished characters. */
static void test_stream_latency(void **state)
{
    (void)state;
    check_stream("llama2", (const char *[]){"\xe2\x96\x81", "a", "<0xE4>", "<0xBD>", "<0xA0>", "a", "<0xE5>", NULL},
                 (const char *[]){"", "a", "", "", "\xe4\xbd\xa0", "a", "", "\xef\xbf\xbd"});
    check_stream("llama2", (const char *[]){"<0x41>", "<0xE5>", "<0x41>", "<0x42>", "a", "<0x42>", NULL},
                 (const char *[]){"A", "", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd", "a", "B", ""});
    check_stream(
        "gpt2",
        (const char *[]){"\xc3\xa4", "\xc2\xbd", "\xc4\xa2", "a", "\xc3\xa4", "\xc2\xbd", "a", "\xc3\xa4", NULL},
        (const char *[]){"", "", "\xe4\xbd\x80", "a", "", "",
                         "\xef\xbf\xbd"
                         "a",
                         "", "\xef\xbf\xbd"});
    /* A real U+FFFD is complete text. */
    check_stream("gpt2", (const char *[]){"\xc3\xaf", "\xc2\xbf", "\xc2\xbd", NULL},
                 (const char *[]){"", "", "\xef\xbf\xbd", ""});
    check_stream("no_decoder", (const char *[]){"a", "b", NULL}, (const char *[]){"a", " b", ""});
}

int main(void)
{
    struct CMUnitTest tests[2 * N_PIPELINES + 4];
    size_t n = 0;
    for (size_t i = 0; i < N_PIPELINES; i++) {
        tests[n++] = (struct CMUnitTest){pipelines[i], test_cases, NULL, NULL, (void *)pipelines[i]};
        tests[n++] = (struct CMUnitTest){pipelines[i], test_digests, NULL, NULL, (void *)pipelines[i]};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_repeated);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_long_word);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_empty_and_invalid);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_stream_latency);
    return _cmocka_run_group_tests("tokenizer", tests, n, NULL, NULL);
}
