/* tests/unit/test_durations.c - commands/bench/durations.c: percentiles against those of the sorted times. */
#include "tests/unit/unit.h"

#include "commands/bench/durations.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 5000 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_near(double found, double expected, double share)
{
    if (!(fabs(found - expected) <= share * expected))
        fail_msg("found %g, expected %g within %g %%", found, expected, 100 * share);
}

/* Times over seven powers of ten. */
static void percentiles_are_those_of_the_sorted(void **state)
{
    (void)state;
    static const double share[] = {0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1};
    static double time[MOST];
    for (int n = 1; n <= MOST; n = 3 * n + 1) {
        struct durations h = {0};
        double sum = 0;
        uint64_t random = (uint64_t)n;
        for (int i = 0; i < n; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            time[i] = pow(10, -5 + 7 * (double)(random >> 11) * 0x1p-53);
            sum += time[i];
            durations_add(&h, time[i]);
        }
        qsort(time, (size_t)n, sizeof *time, ascending);
        for (size_t k = 0; k < sizeof share / sizeof *share; k++) {
            int rank = (int)ceil(share[k] * n);
            check_near(durations_at(&h, share[k]), time[rank > 0 ? rank - 1 : 0], 0.0051);
        }
        check_near(durations_mean(&h), sum / n, 1e-9);
        assert_true(h.n == (uint64_t)n && h.highest == time[n - 1]);
    }
}

/* No times, zeros, and times beyond the last bin. */
static void the_ends(void **state)
{
    (void)state;
    struct durations none = {0}, h = {0};
    assert_true(durations_at(&none, 0.5) == 0 && durations_mean(&none) == 0);
    durations_add(&h, 0);
    assert_true(durations_at(&h, 0.5) == 0 && h.n == 1);
    durations_add(&h, 1e9);
    durations_add(&h, 1e9);
    assert_true(h.highest == 1e9 && h.bin[DURATIONS_BINS - 1] == 2 && durations_at(&h, 1) > 7000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_those_of_the_sorted),
        cmocka_unit_test(the_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
