/* tests/unit/test_client_samples.c - Prometheus' text format as `top` reads it. */
#include "client/samples.h"
#include "tests/unit/unit.h"

#include <math.h>

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-9 * (1 + fabs((double)(b))))

static const char first[] = "# HELP lockstep_x Some {words} 1\n"
                            "# TYPE lockstep_x counter\n"
                            "lockstep_x{rank=\"0\",what=\"a } b\\\" \\\\\"} 1.5\n"
                            "lockstep_x{rank=\"1\",} 2e1\n"
                            "vllm:y 7\n"
                            "z{ 8\n"
                            "lockstep_w{a=\"b\"}9\n"
                            "lockstep_v nine\n"
                            "lockstep_t_bucket{le=\"0.1\"} 0\n"
                            "lockstep_t_bucket{le=\"1\"} 10\n"
                            "lockstep_t_bucket{le=\"+Inf\"} 10\n"
                            "lockstep_t_sum 5\n"
                            "lockstep_t_count 10\n"
                            "lockstep_last 3";

/* 20 more: 5 up to 0.1, 10 from there up to 1, 5 above. */
static const char second[] = "lockstep_t_bucket{le=\"0.1\"} 5\n"
                             "lockstep_t_bucket{le=\"1\"} 25\n"
                             "lockstep_t_bucket{le=\"+Inf\"} 30\n"
                             "lockstep_t_sum 45\n"
                             "lockstep_t_count 30\n";

static void reads(void **state)
{
    struct samples m;
    struct err e = {0};
    char label[32];
    (void)state;
    assert_int_equal(samples_read(&m, first, &e), 0);
    NEAR(samples_sum(&m, "x", NULL, NULL), 21.5);
    NEAR(samples_sum(&m, "x", "rank", "1"), 20);
    NEAR(samples_sum(&m, "y", NULL, NULL), 7);
    NEAR(samples_sum(&m, "last", NULL, NULL), 3);
    assert_true(isnan(samples_sum(&m, "x", "rank", "2")));
    assert_true(isnan(samples_sum(&m, "z", NULL, NULL)));
    assert_true(isnan(samples_sum(&m, "w", NULL, NULL)));
    assert_true(isnan(samples_sum(&m, "v", NULL, NULL)));
    assert_true(isnan(samples_sum(&m, "absent", NULL, NULL)));
    samples_label(&m.sample[0], "what", label, sizeof label);
    assert_string_equal(label, "a } b\" \\");
    NEAR(samples_sum(&m, "x", "what", "a } b\" \\"), 1.5);
    samples_label(&m.sample[0], "rank", label, sizeof label);
    assert_string_equal(label, "0");
    samples_label(&m.sample[0], "none", label, sizeof label);
    assert_string_equal(label, "");
    samples_close(&m);
}

static void histograms(void **state)
{
    struct samples before, now;
    struct err e = {0};
    bool below = true;
    (void)state;
    assert_int_equal(samples_read(&before, first, &e), 0);
    assert_int_equal(samples_read(&now, second, &e), 0);
    NEAR(samples_mean(&now, &before, "t"), 2);
    NEAR(samples_mean(&now, NULL, "t"), 1.5);
    NEAR(samples_quantile(&now, &before, "t", 0.5, &below),
         0.1 + 0.9 * 5 / 10); /* the 10th of 20: 5 of 10 into (0.1, 1] */
    assert_false(below);
    NEAR(samples_quantile(&now, &before, "t", 0.2, &below), 0.1);
    assert_true(below);
    NEAR(samples_quantile(&now, &before, "t", 0.99, &below), 1); /* in the last bucket: its lower bound */
    assert_true(isnan(samples_mean(&now, &now, "t")));
    assert_true(isnan(samples_quantile(&now, &now, "t", 0.5, &below)));
    assert_true(isnan(samples_quantile(&now, NULL, "absent", 0.5, &below)));
    samples_close(&before);
    samples_close(&now);
}

/* Text that no server would write does no harm. */
static void hostile(void **state)
{
    static const char *const texts[] = {"",     "{",    "a{b=\"", "a{b=\"c\\", "a{b=\"c\\\"} 1", "\n\n",
                                        "a{}1", "a{} ", "a",      "{} 1",      "a{b=c} 1"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct samples m;
        struct err e = {0};
        char label[8];
        assert_int_equal(samples_read(&m, texts[i], &e), 0);
        for (size_t k = 0; k < m.n; k++)
            samples_label(&m.sample[k], "b", label, sizeof label);
        samples_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(histograms),
        cmocka_unit_test(hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
