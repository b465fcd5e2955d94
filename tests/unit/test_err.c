/* tests/unit/test_err.c - base/err.c and the other writers to standard error: base/progress.c, base/log.c. */
#include "tests/unit/unit.h"

#include "base/log.h"
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
    assert_memory_equal(e.text + 14 + 0x41 - 1, "ABC", 3); /* printable characters and UTF-8 are unchanged */
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

/* The address sanitizer would end the program instead of letting calloc return NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
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
    const enum err_code code[] = {ERR_NONE, ERR_REQUEST, ERR_USAGE,  ERR_INPUT, ERR_UNSUPPORTED,
                                  ERR_IO,   ERR_MEMORY,  ERR_DEVICE, ERR_COMM,  ERR_INTERNAL};
    for (size_t i = 0; i < sizeof code / sizeof code[0]; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(err_code_name(code[i]), err_code_name(code[j]));
    assert_string_equal(err_code_name((enum err_code)1000), "internal error");
}

/* Standard error is a pipe meanwhile. */
struct capture {
    int fds[2], saved;
};

static void capture_begin(struct capture *c)
{
    (void)fflush(stderr);
    c->saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(c->fds), 0);
    assert_true(dup2(c->fds[1], STDERR_FILENO) >= 0);
    (void)close(c->fds[1]);
}

/* Returns the text that was written, up to size - 1 bytes. */
static size_t capture_end(struct capture *c, char *text, size_t size)
{
    (void)fflush(stderr);
    (void)dup2(c->saved, STDERR_FILENO);
    (void)close(c->saved);
    ssize_t n = read(c->fds[0], text, size - 1);
    (void)close(c->fds[0]);
    assert_true(n >= 0);
    text[n] = '\0';
    return (size_t)n;
}

/* Returns the output of a progress bar. */
static size_t draw(enum progress_mode mode, const char *unit, uint64_t total, uint64_t done, char *text, size_t size)
{
    struct capture c;
    struct progress p;
    capture_begin(&c);
    progress_open(&p, mode, "loading", unit, total);
    progress_update(&p, done, "note");
    progress_update(&p, done > 0 ? done - 1 : 0, "too soon"); /* within a tenth of a second: not drawn */
    progress_close(&p);
    progress_update(&p, total, "after the end");
    return capture_end(&c, text, size);
}

static void progress_is_silent_without_a_terminal(void **state)
{
    (void)state;
    char text[2000];
    assert_int_equal(draw(PROGRESS_NEVER, "B", 100, 100, text, sizeof text), 0);
    assert_int_equal(draw(PROGRESS_AUTO, "B", 100, 100, text, sizeof text), 0);
}

static void progress_shows_part_and_units(void **state)
{
    (void)state;
    char text[2000];
    assert_true(draw(PROGRESS_ALWAYS, "B", 4096, 2048, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\rloading [############............]  50%  2.00 KiB of 4.00 KiB  "));
    assert_non_null(strstr(text, "/s  note\x1b[K"));
    assert_null(strstr(text, "too soon"));
    assert_null(strstr(text, "after the end"));
    assert_string_equal(text + strlen(text) - 4, "\r\x1b[K"); /* removed */
    (void)draw(PROGRESS_ALWAYS, "prompts", 3, 3, text, sizeof text);
    assert_non_null(strstr(text, "\rloading [########################] 100%  3 prompts of 3 prompts  "));
    (void)draw(PROGRESS_ALWAYS, "B", 0, 0, text, sizeof text);
    assert_non_null(strstr(text, "100%  0 B of 0 B  "));
    (void)draw(PROGRESS_ALWAYS, "B", UINT64_MAX, UINT64_MAX, text, sizeof text);
    assert_non_null(strstr(text, "16777216.00 TiB of 16777216.00 TiB"));
}

static void log_speaks_when_asked(void **state)
{
    (void)state;
    struct capture c;
    char text[2000], many[2000];
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    capture_begin(&c);
    log_open(false, true);
    log_warn("other ranks are silent");
    log_info("other ranks are silent");
    log_open(true, false);
    log_info("nobody asked");
    assert_int_equal(capture_end(&c, text, sizeof text), 0);
    capture_begin(&c);
    log_warn("%d is %s", 1, "odd");
    log_open(true, true);
    log_info("loaded %s", "it");
    (void)capture_end(&c, text, sizeof text);
    assert_memory_equal(text, "lockstep: warning: 1 is odd\nlockstep: 0.00", 42);
    assert_string_equal(strchr(text, '\n') + strlen("\nlockstep: 0.000"), " s: loaded it\n");
    capture_begin(&c);
    log_warn("%s", many); /* truncated, but still a line */
    assert_int_equal(capture_end(&c, text, sizeof text), 1023);
    assert_int_equal(text[1022], '\n');
    log_open(false, false);
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
        cmocka_unit_test(log_speaks_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
