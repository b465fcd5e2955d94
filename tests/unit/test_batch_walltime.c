/* tests/unit/test_batch_walltime.c - coordinator/batch/walltime.c: every form of a time, and the limit that counts. */
#include "tests/unit/unit.h"

#include "coordinator/batch/walltime.h"

#include <math.h>
#include <string.h>

static void forms(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"90", 90},
                {"0", 0},
                {"2.5", 2.5},
                {"01:30", 90},
                {"90:00", 5400},
                {"1:02:03", 3723},
                {"100:00:00", 360000},
                {"1-0", 86400},
                {"1-02:30", 95400},
                {"2-03:04:05", 183845},
                {"UNLIMITED", INFINITY},
                {"unlimited", INFINITY}};
    static const char *const bad[] = {"",        "-1",   "x",    "1:",     ":1",         "1:60",    "1:60:00",
                                      "1:2:3:4", "1-24", "1-",   "-",      "1-2:60",     "1e3",     "nan",
                                      "inf",     "1 2",  "12s",  "1.5:00", "1-2-3",      "INVALID", "99999999999999",
                                      "1:-2",    "+5",   "0x10", "1..2",   "2000000000", "."};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct err e = {0};
        double seconds = -1;
        assert_int_equal(walltime_parse(&seconds, good[i].text, "max-walltime", &e), 0);
        assert_true(seconds == good[i].seconds);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e = {0};
        double seconds;
        assert_int_equal(walltime_parse(&seconds, bad[i], "max-walltime", &e), -1);
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.text, "--max-walltime"));
    }
}

static void the_sooner_one(void **unused)
{
    (void)unused;
    const struct walltime_now now = {.monotonic = 1000, .epoch = 5e9, .since_started = 20};
    const struct walltime_now young = {.monotonic = 1000, .epoch = 5e9, .since_started = -1};
    struct walltime w;
    struct err e = {0};
    assert_int_equal(walltime_open(&w, NULL, NULL, &now, &e), 0);
    assert_true(isinf(w.ends) && w.source[0] == '\0');
    assert_int_equal(walltime_open(&w, "100", NULL, &now, &e), 0);
    assert_true(w.ends == 1080); /* counted from the start of the process */
    assert_string_equal(w.source, "--max-walltime");
    assert_int_equal(walltime_open(&w, "100", NULL, &young, &e), 0);
    assert_true(w.ends == 1100);
    assert_int_equal(walltime_open(&w, NULL, "5000000030", &now, &e), 0);
    assert_true(w.ends == 1030);
    assert_string_equal(w.source, "SLURM_JOB_END_TIME");
    assert_int_equal(walltime_open(&w, "100", "5000000030", &now, &e), 0);
    assert_string_equal(w.source, "SLURM_JOB_END_TIME");
    assert_int_equal(walltime_open(&w, "40", "5000000030", &now, &e), 0);
    assert_string_equal(w.source, "--max-walltime");
    assert_true(w.ends == 1020);
    assert_int_equal(walltime_open(&w, "UNLIMITED", "5000000030", &now, &e), 0);
    assert_true(w.ends == 1030);
    assert_int_equal(walltime_open(&w, NULL, "4999999990", &now, &e), 0); /* already over */
    assert_true(w.ends == 990);
    assert_int_equal(walltime_open(&w, NULL, "tomorrow", &now, &e), -1);
    assert_non_null(strstr(e.text, "SLURM_JOB_END_TIME"));
    assert_non_null(strstr(e.text, "tomorrow"));
}

static void in_words(void **unused)
{
    (void)unused;
    char text[WALLTIME_TEXT_BYTES];
    assert_string_equal(walltime_say(text, 0), "0:00");
    assert_string_equal(walltime_say(text, -3), "0:00");
    assert_string_equal(walltime_say(text, 61.9), "1:01");
    assert_string_equal(walltime_say(text, 3723), "1:02:03");
    assert_string_equal(walltime_say(text, 183845), "2-03:04:05");
    assert_string_equal(walltime_say(text, INFINITY), "unlimited");
    for (double s = 0; s < 400000; s += 997) { /* and back again */
        struct err e = {0};
        double back;
        assert_int_equal(walltime_parse(&back, walltime_say(text, s), "t", &e), 0);
        assert_true(back == s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(the_sooner_one),
        cmocka_unit_test(in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
