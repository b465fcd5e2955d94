/* tests/unit/test_protocol_speed.c - the processor time and memory that the largest messages take to parse and to
 * answer, printed; the bounds are loose enough for sanitizers, tight enough to catch anything that is not linear. */
#include "tests/unit/unit.h"

#include "protocol/reply.h"
#include "tests/support/process.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define MESSAGE_BYTES ((size_t)16 << 20)
#define MOST_SECONDS  20.0
#define MOST_MEMORY   ((size_t)320 << 20) /* 20 times the message */

static const struct protocol_model model = {.name = "demo", .vocab = 100000};

/* Returns the bytes that malloc has handed out, before the message is closed. */
static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Parses it and prints the cost. wanted: the code, 0 for none. */
static void measure(const char *what, const char *json, size_t bytes, int wanted)
{
    struct protocol_message m;
    struct protocol_error error;
    size_t before = in_use();
    double start = process_cpu_seconds();
    (void)protocol_parse(&m, json, bytes, &model, true, &error);
    double seconds = process_cpu_seconds() - start;
    size_t memory = in_use() - before;
    if (error.code != wanted)
        print_error("%s: code %d, expected %d: %s\n", what, error.code, wanted, error.message);
    assert_int_equal(error.code, wanted);
    print_message("%s: %.1f MB in %.3f s, %.0f MB/s, holds %.1f MB%s%s\n", what, (double)bytes / 1e6, seconds,
                  (double)bytes / 1e6 / seconds, (double)memory / 1e6, wanted != 0 ? ": " : "", error.message);
    assert_true(seconds < MOST_SECONDS);
    assert_true(memory < MOST_MEMORY);
    protocol_message_close(&m);
    assert_true(in_use() < before + ((size_t)1 << 20)); /* all of it is freed */
}

/* Returns as many copies of `unit` as fit between two texts. */
static char *filled(const char *begin, const char *unit, size_t n, const char *end, size_t *bytes)
{
    char *json = malloc(strlen(begin) + n * strlen(unit) + strlen(end) + 1), *at = stpcpy(json, begin);
    size_t length = strlen(unit);
    for (size_t i = 0; i < n; i++, at += length)
        memcpy(at, unit, length);
    at = stpcpy(at, end);
    *bytes = (size_t)(at - json);
    return json;
}

static void try_message(const char *what, const char *begin, const char *unit, size_t n, const char *end, int wanted)
{
    size_t bytes = 0;
    char *json = filled(begin, unit, n, end, &bytes);
    measure(what, json, bytes, wanted);
    free(json);
}

static void parses_large_messages(void **state)
{
    (void)state;
    size_t n = MESSAGE_BYTES - 64;
    try_message("text", "{\"prompt\": \"", "Hello, world! ", n / 14, "\"}", 0);
    try_message("characters of 3 bytes", "{\"prompt\": \"", "\xe4\xbd\xa0", n / 3, "\"}", 0);
    try_message("escapes", "{\"prompt\": \"", "\\u4f60", n / 6, "\"}", 0);
    try_message("1,000,000 token ids", "{\"prompt\": [0", ", 12345", 1000000, "]}", 0);
    try_message("2,000,000 token ids", "{\"prompt\": [0", ",1", 2000000, "]}", 0);
    try_message("4,000 prompts of text", "{\"prompt\": [\"\"", ",\"Hello, world!\"", 4000, "]}", 0);
    try_message("65,000 lists", "{\"prompt\": [[1]", ",[1]", 65000, "]}", 400);
}

static void refuses_large_messages(void **state)
{
    (void)state;
    size_t n = MESSAGE_BYTES - 64;
    try_message("too many ids", "{\"prompt\": [1", ",1", n / 2, "]}", 413);
    try_message("too many lists", "{\"prompt\": [[]", ",[]", n / 3, "]}", 413);
    try_message("too many objects", "{\"prompt\": [{}", ",{}", n / 3, "]}", 413);
    try_message("deep", "", "[", n, "", 413);
    try_message("quotes", "", "\"", n, "", 400);
    try_message("zeros", "{\"n\": 1", "0", n, "}", 400);
    try_message("many unknown fields", "{\"", "x", n, "\": 1}", 400);
}

/* All keys are different: the worst case for a table of keys. */
static void refuses_many_keys(void **state)
{
    (void)state;
    size_t n = 130000;
    char *json = malloc(n * 16 + 16), *at = stpcpy(json, "{\"a\":0");
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, ",\"k%zx\":0", i);
    (void)stpcpy(at, "}");
    measure("130,000 keys", json, strlen(json), 400);
    free(json);
}

static void writes_large_replies(void **state)
{
    (void)state;
    size_t n = 1000000, bytes = 0;
    int32_t *id = malloc(n * sizeof *id);
    for (size_t i = 0; i < n; i++)
        id[i] = 12345;
    char *text = filled("", "Hello, \xe4\xbd\xa0\n", n, "", &bytes);
    const struct reply_choice choice = {.text = text, .bytes = bytes, .token_id = id, .n_tokens = n};
    const struct reply r = {.request_id = "x", .model = "m", .n_choices = 1, .choice = &choice};
    double start = process_cpu_seconds();
    char *reply = reply_generate(&r, &bytes);
    double seconds = process_cpu_seconds() - start;
    assert_non_null(reply);
    print_message("a reply of 1,000,000 tokens: %.1f MB in %.3f s\n", (double)bytes / 1e6, seconds);
    assert_true(seconds < MOST_SECONDS);
    free(reply);
    start = process_cpu_seconds();
    const struct reply_choice one = {.text = "Hello", .bytes = 5, .token_id = id, .n_tokens = 1};
    const struct reply event = {.request_id = "some-request-1234", .n_choices = 1, .choice = &one};
    for (uint64_t i = 0; i < 100000; i++) {
        reply = reply_tokens(&event, i, &bytes);
        assert_non_null(reply);
        free(reply);
    }
    seconds = process_cpu_seconds() - start;
    print_message("an event of one token: %.2f us\n", seconds * 10);
    assert_true(seconds < MOST_SECONDS);
    free(text);
    free(id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_large_messages),
        cmocka_unit_test(refuses_large_messages),
        cmocka_unit_test(refuses_many_keys),
        cmocka_unit_test(writes_large_replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
