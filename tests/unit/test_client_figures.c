/* tests/unit/test_client_figures.c - figures of a bench: vLLM's definitions, on times simple enough to check by
 * hand. */
#include "client/bench_figures.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-9 * (1 + fabs((double)(b))))

static void add(struct bench_times *t, double now)
{
    struct err e = {0};
    assert_int_equal(bench_times_add(t, now, &e), 0);
}

/* numpy.percentile([1, 2, 3, 4, 10], q): 3 at 50, 7.6 at 90, 9.76 at 99 */
static void percentiles_interpolate(void **state)
{
    const double value[] = {1, 2, 3, 4, 10};
    (void)state;
    NEAR(bench_percentile(value, 5, 0.5), 3);
    NEAR(bench_percentile(value, 5, 0.9), 7.6);
    NEAR(bench_percentile(value, 5, 0.99), 9.76);
    NEAR(bench_percentile(value, 5, 0), 1);
    NEAR(bench_percentile(value, 5, 1), 10);
    NEAR(bench_percentile(value, 1, 0.99), 1);
    NEAR(bench_percentile(value, 0, 0.5), 0);
}

/* Request 0: sent at 10, tokens at 10.5, 10.6, 10.9: TTFT 500, E2EL 900, TPOT 200, ITL 100 and 300 ms. Request 1: sent
 * at 11, one token at 11.1: TTFT and E2EL 100, no TPOT, no ITL. Request 2 failed after a token and counts nowhere. */
static void definitions(void **state)
{
    struct bench_times t[3] = {{.succeeded = true, .n_input = 7, .n_output = 3, .sent = 10},
                               {.succeeded = true, .n_input = 5, .n_output = 1, .sent = 11},
                               {.succeeded = false, .n_input = 9, .n_output = 1, .sent = 10}};
    struct bench_figures f;
    struct err e = {0};
    (void)state;
    add(&t[0], 10.5);
    add(&t[0], 10.6);
    add(&t[0], 10.9);
    add(&t[1], 11.1);
    add(&t[2], 10.2);
    assert_int_equal(bench_figures(&f, t, 3, 2.0, &e), 0);
    assert_int_equal(f.completed, 2);
    assert_int_equal(f.failed, 1);
    assert_int_equal(f.total_input, 12);
    assert_int_equal(f.total_output, 4);
    NEAR(f.requests_per_s, 1);
    NEAR(f.output_per_s, 2);
    NEAR(f.tokens_per_s, 8);
    NEAR(f.ttft.mean, 300);
    NEAR(f.ttft.p50, 300);
    NEAR(f.ttft.p90, 460);
    NEAR(f.ttft.deviation, 200);
    NEAR(f.e2el.mean, 500);
    NEAR(f.e2el.p99, 892);
    NEAR(f.tpot.mean, 200);
    NEAR(f.tpot.deviation, 0);
    NEAR(f.itl.mean, 200);
    NEAR(f.itl.p90, 280);
    assert_int_equal(f.peak_concurrent, 1);
    NEAR(f.peak_output_per_s, 3); /* 10.5, 10.6, 10.9 are in the first second, 11.1 in the next */
    for (int i = 0; i < 3; i++)
        free(t[i].event);
}

/* An end at the same time as a start comes first. */
static void concurrency(void **state)
{
    struct bench_times t[4];
    const double sent[4] = {0, 1, 1, 2}, ended[4] = {2, 3, 1.5, 4};
    struct bench_figures f;
    struct err e = {0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        t[i] = (struct bench_times){.succeeded = true, .n_output = 1, .sent = sent[i]};
        add(&t[i], ended[i]);
    }
    assert_int_equal(bench_figures(&f, t, 4, 4.0, &e), 0);
    assert_int_equal(f.peak_concurrent, 3);
    for (int i = 0; i < 4; i++)
        free(t[i].event);
}

static void nothing(void **state)
{
    struct bench_times t = {0};
    struct bench_figures f;
    struct err e = {0};
    (void)state;
    assert_int_equal(bench_figures(&f, &t, 1, 1.0, &e), 0);
    assert_int_equal(f.completed, 0);
    assert_int_equal(f.failed, 1);
    NEAR(f.ttft.mean, 0);
    NEAR(f.itl.p99, 0);
    NEAR(f.output_per_s, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_interpolate),
        cmocka_unit_test(definitions),
        cmocka_unit_test(concurrency),
        cmocka_unit_test(nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
