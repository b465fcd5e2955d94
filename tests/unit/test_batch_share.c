/* tests/unit/test_batch_share.c - coordinator/batch/share.c: shares are disjoint and complete, and nothing is shared
 * without being asked. */
#include "tests/unit/unit.h"

#include "coordinator/batch/share.h"

#include <string.h>

static const struct share_array none = {0};

static int open_array(struct share *s, enum share_mode mode, const char *output, const char *id, const char *count,
                      const char *min, const char *max, const char *step, struct err *e)
{
    const struct share_array array = {id, count, min, max, step};
    *e = (struct err){0};
    return share_open(s, NULL, mode, &array, output, e);
}

static void by_option(void **unused)
{
    (void)unused;
    static const char *const bad[] = {"", "1", "/2", "2/2", "3/2", "-1/2", "0/0", "a/b", "0/2x", "1/", "0/99999999999"};
    struct share s;
    struct err e = {0};
    assert_int_equal(share_open(&s, "2/5", SHARE_AUTO, &none, "out", &e), 0);
    assert_true(s.index == 2 && s.count == 5 && s.task == 2);
    assert_int_equal(share_open(&s, NULL, SHARE_AUTO, &none, "out", &e), 0);
    assert_true(s.count == 1 && s.task == -1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        e = (struct err){0};
        assert_int_equal(share_open(&s, bad[i], SHARE_AUTO, &none, "out", &e), -1);
        assert_non_null(strstr(e.text, "--shard"));
    }
    e = (struct err){0};
    assert_int_equal(share_open(&s, "1/2", SHARE_ON, &none, "out", &e), -1);
}

static void by_array(void **unused)
{
    (void)unused;
    struct share s;
    struct err e;
    assert_int_equal(open_array(&s, SHARE_AUTO, "o-{task}", "3", "4", "0", "3", "1", &e), 0);
    assert_true(s.index == 3 && s.count == 4 && s.task == 3);
    assert_int_equal(open_array(&s, SHARE_AUTO, "o-%a", "1", "4", "1", "4", NULL, &e), 0);
    assert_true(s.index == 0 && s.count == 4 && s.task == 1);
    assert_int_equal(open_array(&s, SHARE_ON, "o", "8", "5", "0", "8", "2", &e), 0);
    assert_true(s.index == 4 && s.count == 5 && s.task == 8);
    /* Nothing is shared without being asked, and unknowable shares are refused by name. */
    assert_int_equal(open_array(&s, SHARE_AUTO, "o", "3", "4", "0", "3", "1", &e), -1);
    assert_non_null(strstr(e.text, "{task}"));
    assert_non_null(strstr(e.text, "--array-shard off"));
    assert_int_equal(open_array(&s, SHARE_OFF, "o", "3", "4", "0", "3", "1", &e), 0);
    assert_true(s.count == 1 && s.index == 0);
    assert_int_equal(open_array(&s, SHARE_OFF, "o-%a", "3", "4", "0", "3", "1", &e), 0);
    assert_true(s.count == 1 && s.task == 3);
    assert_int_equal(open_array(&s, SHARE_AUTO, "o", "2", "1", "2", "2", "1", &e), 0); /* an array of one task */
    assert_true(s.count == 1);
    assert_int_equal(open_array(&s, SHARE_AUTO, "o-%a", "2", "1", "2", "2", "1", &e), -1);
    assert_non_null(strstr(e.text, "--shard K/N"));
    assert_int_equal(open_array(&s, SHARE_AUTO, "o-%a", "7", "3", "1", "7", "1", &e), -1); /* --array=1,3,7 */
    assert_non_null(strstr(e.text, "gaps"));
    assert_int_equal(open_array(&s, SHARE_AUTO, "o-%a", "x", "3", "1", "3", "1", &e), -1);
    assert_non_null(strstr(e.text, "SLURM_ARRAY_TASK_ID"));
    assert_int_equal(open_array(&s, SHARE_AUTO, "o-%a", "1", NULL, "1", "3", "1", &e), -1);
    assert_non_null(strstr(e.text, "SLURM_ARRAY_TASK_COUNT"));
    assert_int_equal(open_array(&s, SHARE_AUTO, "o-%a", NULL, NULL, NULL, NULL, NULL, &e), -1);
    assert_non_null(strstr(e.text, "not a task"));
    assert_int_equal(open_array(&s, SHARE_ON, "o", NULL, NULL, NULL, NULL, NULL, &e), -1);
}

static void every_line_once(void **unused)
{
    (void)unused;
    for (int64_t count = 1; count < 12; count++)
        for (uint64_t line = 0; line < 100; line++) {
            int takers = 0;
            for (int64_t k = 0; k < count; k++)
                takers += share_takes(&(struct share){.index = k, .count = count}, line);
            assert_int_equal(takers, 1);
        }
}

static void paths(void **unused)
{
    (void)unused;
    const struct share s = {.index = 0, .count = 2, .task = 17}, no_task = {.count = 1, .task = -1};
    char out[32];
    struct err e = {0};
    assert_int_equal(share_path(&s, out, sizeof out, "a-{task}.jsonl", &e), 0);
    assert_string_equal(out, "a-17.jsonl");
    assert_int_equal(share_path(&s, out, sizeof out, "%a/{task}{tas", &e), 0);
    assert_string_equal(out, "17/17{tas");
    assert_int_equal(share_path(&no_task, out, sizeof out, "plain", &e), 0);
    assert_string_equal(out, "plain");
    assert_int_equal(share_path(&no_task, out, sizeof out, "a%a", &e), -1);
    assert_int_equal(e.code, ERR_USAGE);
    for (size_t bytes = 1; bytes < 14; bytes++) { /* "aaaaaaaa17bb" is 12 */
        char small[16];
        memset(small, '#', sizeof small);
        e = (struct err){0};
        int status = share_path(&s, small, bytes, "aaaaaaaa{task}bb", &e);
        assert_int_equal(status, bytes > 12 ? 0 : -1);
        assert_int_equal(small[bytes], '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_option),
        cmocka_unit_test(by_array),
        cmocka_unit_test(every_line_once),
        cmocka_unit_test(paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
