/* tests/unit/test_err.c - base/err.c and base/progress.c. */
#include "tests/unit/unit.h"

#include "base/progress.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void first_failure_wins(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(ERR(&e, ERR_IO, "first %d", 1), -1);
    assert_int_equal(ERR(&e, ERR_MEMORY, "second"), -1);
    expect_text(&e, ERR_IO, "first 1");
}

static void stays_one_line(void **state)
{
    (void)state;
    struct err e = {0};
    char all[256];
    for (int c = 1; c < 256; c++)
        all[c - 1] = (char)c;
    all[255] = '\0';
    ERR(&e, ERR_INPUT, "a\nb\rc\td\x1b[31m\x7f|%s", all);
    for (const char *c = e.text; *c != '\0'; c++)
        assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
    assert_memory_equal(e.text, "a?b?c?d?[31m?|", 14);
    assert_int_equal(strlen(e.text), 14 + 255);
    assert_memory_equal(e.text + 14 + 0x41 - 1, "ABC", 3); /* printable ones and UTF-8 are left alone */
    assert_int_equal((unsigned char)e.text[14 + 0xc3 - 1], 0xc3);
}

static void long_text_is_cut(void **state)
{
    (void)state;
    char *text = malloc(10001);
    memset(text, 'x', 10000);
    text[10000] = '\0';
    struct {
        struct err e;
        char guard[8];
    } s = {{0}, "guarded"};
    ERR(&s.e, ERR_INPUT, "%s", text);
    assert_int_equal(strlen(s.e.text), ERR_TEXT_BYTES - 1);
    assert_string_equal(s.guard, "guarded");
    s.e = (struct err){0};
    ERR(&s.e, ERR_INTERNAL, "%s", text);
    assert_int_equal(strlen(s.e.text), ERR_TEXT_BYTES - 1);
    free(text);
}

static void internal_carries_its_place(void **state)
{
    (void)state;
    struct err e = {0};
    err_set(&e, ERR_INTERNAL, "rank/x.c", 17, "off by %s", "one");
    expect_text(&e, ERR_INTERNAL, "rank/x.c:17: off by one");
}

static void allocation_reports(void **state)
{
    (void)state;
    struct err e = {0};
    unsigned char *p = err_calloc(&e, 100, 3, "bytes");
    for (int i = 0; i < 300; i++)
        assert_int_equal(p[i], 0);
    free(p);
    p = err_calloc(&e, 0, 8, "nothing");
    assert_non_null(p);
    free(p);
    expect_none(&e);
    volatile unsigned long huge = ULONG_MAX / 2;
    assert_null(err_calloc(&e, huge, 4, "a table"));
    EXPECT_PARTS(&e, ERR_MEMORY, "out of host memory: a table needs ");
}

static void every_code_has_a_name(void **state)
{
    (void)state;
    const enum err_code code[] = {ERR_NONE, ERR_REQUEST, ERR_USAGE, ERR_INPUT, ERR_UNSUPPORTED, ERR_IO, ERR_MEMORY,
                                  ERR_DEVICE, ERR_COMM, ERR_TIMEOUT, ERR_INTERNAL, ERR_DRAINED};
    for (size_t i = 0; i < sizeof code / sizeof code[0]; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(err_code_name(code[i]), err_code_name(code[j]));
    assert_string_equal(err_code_name((enum err_code)1000), "internal error");
}

/* What a progress bar writes to standard error, which is a pipe here. */
static size_t capture(enum progress_mode mode, const char *unit, uint64_t total, uint64_t done, char *text, size_t size)
{
    int fds[2], saved = dup(STDERR_FILENO);
    struct progress p;
    (void)fflush(stderr);
    assert_int_equal(pipe(fds), 0);
    assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
    progress_open(&p, mode, "loading", unit, total);
    progress_update(&p, done, "note");
    progress_update(&p, done > 0 ? done - 1 : 0, "too soon"); /* within a tenth of a second: not drawn */
    progress_close(&p);
    progress_update(&p, total, "after the end");
    (void)fflush(stderr);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(fds[1]);
    ssize_t n = read(fds[0], text, size - 1);
    (void)close(fds[0]);
    assert_true(n >= 0);
    text[n] = '\0';
    return (size_t)n;
}

static void progress_is_silent_without_a_terminal(void **state)
{
    (void)state;
    char text[2000];
    assert_int_equal(capture(PROGRESS_NEVER, "B", 100, 100, text, sizeof text), 0);
    assert_int_equal(capture(PROGRESS_AUTO, "B", 100, 100, text, sizeof text), 0);
}

static void progress_shows_part_and_units(void **state)
{
    (void)state;
    char text[2000];
    assert_true(capture(PROGRESS_ALWAYS, "B", 4096, 2048, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\rloading [############............]  50%  2.00 KiB of 4.00 KiB  "));
    assert_non_null(strstr(text, "/s  note\x1b[K"));
    assert_null(strstr(text, "too soon"));
    assert_null(strstr(text, "after the end"));
    assert_string_equal(text + strlen(text) - 4, "\r\x1b[K"); /* taken away */
    (void)capture(PROGRESS_ALWAYS, "prompts", 3, 3, text, sizeof text);
    assert_non_null(strstr(text, "\rloading [########################] 100%  3 prompts of 3 prompts  "));
    (void)capture(PROGRESS_ALWAYS, "B", 0, 0, text, sizeof text);
    assert_non_null(strstr(text, "100%  0 B of 0 B  "));
    (void)capture(PROGRESS_ALWAYS, "B", UINT64_MAX, UINT64_MAX, text, sizeof text);
    assert_non_null(strstr(text, "16777216.00 TiB of 16777216.00 TiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_failure_wins),
        cmocka_unit_test(stays_one_line),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(internal_carries_its_place),
        cmocka_unit_test(allocation_reports),
        cmocka_unit_test(every_code_has_a_name),
        cmocka_unit_test(progress_is_silent_without_a_terminal),
        cmocka_unit_test(progress_shows_part_and_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
