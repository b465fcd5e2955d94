/* tests/unit/test_log.c - base/log.c: the file of a process gets every line of every thread, each complete. */
#include "tests/unit/unit.h"

#include "base/log.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void the_file(void **unused)
{
    (void)unused;
    char dir[256], path[300], long_text[5000];
    struct err e = {0};
    files_make_dir(dir);
    (void)snprintf(path, sizeof path, "%s/rank-3.log", dir);
    log_open(false, false); /* silent, except in the file */
    log_warn("before");
    assert_int_equal(log_file(path, "host7", 3, &e), 0);
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    log_warn("a %s", "warning");
    log_note("a note");
    log_info("%d", 42);
    log_note("%s", long_text);
    log_fatal("the end");
    size_t bytes;
    char *text = files_read(dir, "rank-3.log", &bytes), *line[8] = {NULL};
    int n = 0;
    for (char *at = strtok(text, "\n"); at != NULL && n < 8; at = strtok(NULL, "\n"))
        line[n++] = at;
    assert_int_equal(n, 5);
    static const char *const ends[] = {" host7 rank 3 warning: a warning", " host7 rank 3 note: a note",
                                       " host7 rank 3 info: 42", NULL, " host7 rank 3 fatal: the end"};
    for (int i = 0; i < 5; i++) {
        int year, month, day, hour, minute, second, millisecond, used = 0;
        assert_int_equal(sscanf(line[i], "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour, &minute, &second,
                                &millisecond, &used),
                         7);
        assert_int_equal(used, (int)strlen("2026-11-22T01:24:44.123Z"));
        if (ends[i] != NULL)
            assert_string_equal(line[i] + used, ends[i]);
        else
            assert_true(strlen(line[i]) > 1000 && strlen(line[i]) < 2000); /* truncated, but with its newline */
    }
    free(text);
    files_remove_dir(dir);
}

static void no_file(void **unused)
{
    (void)unused;
    struct err e = {0};
    assert_int_equal(log_file("/no/such/folder/x.log", "h", 0, &e), -1);
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.text, "/no/such/folder/x.log"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_file), cmocka_unit_test(the_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
