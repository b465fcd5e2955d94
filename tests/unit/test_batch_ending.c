/* tests/unit/test_batch_ending.c - coordinator/batch/ending.c and pace.c: which requests still start, when they are
 * cut, and the status. */
#include "tests/unit/unit.h"

#include "coordinator/batch/ending.h"
#include "coordinator/batch/pace.h"

#include <math.h>

static struct ending begin(double ends, double reserve, double drain, double end)
{
    struct ending g;
    const struct ending_setup setup = {{ends, "--max-walltime"}, reserve, drain, end};
    ending_open(&g, &setup);
    return g;
}

static void no_limit(void **unused)
{
    (void)unused;
    struct ending g = begin(INFINITY, -1, 60, 0);
    assert_int_equal(ending_turn(&g, 1e9), ENDING_RUN);
    assert_true(ending_fits(&g, 1e9, 5));
    ending_nothing_fits(&g); /* impossible, but cuts nothing */
    assert_int_equal(ending_turn(&g, 1e9), ENDING_DRAIN);
}

static void the_walltime(void **unused)
{
    (void)unused;
    struct ending g = begin(100, 10, 60, 0);
    assert_true(ending_limit(&g) == 90);
    assert_true(ending_fits(&g, 30, 60));
    assert_false(ending_fits(&g, 30.1, 60));
    assert_int_equal(ending_turn(&g, 70), ENDING_RUN);
    ending_nothing_fits(&g);
    assert_int_equal(ending_turn(&g, 89), ENDING_DRAIN);
    assert_false(ending_fits(&g, 0, 89));
    assert_int_equal(ending_turn(&g, 90), ENDING_CUT);
    assert_string_equal(g.cause, "--max-walltime");
    assert_int_equal(ending_turn(&g, 0), ENDING_CUT); /* this cannot be undone */
    /* The time needed for the end is learned from the slowest sync and step, unless the user gives it. */
    g = begin(100, -1, 60, 0);
    double before = ending_reserve(&g);
    assert_true(before > 0);
    ending_learn(&g, 4, 0.5);
    ending_learn(&g, 1, 0.1);
    assert_true(fabs(ending_reserve(&g) - (before + 9)) < 1e-9);
    g = begin(100, 2, 60, 0);
    ending_learn(&g, 4, 0.5);
    assert_true(ending_reserve(&g) == 2);
}

static void signals(void **unused)
{
    (void)unused;
    struct ending g = begin(INFINITY, -1, 60, 0);
    ending_signal(&g, WISH_DRAIN, true, 1000);
    assert_int_equal(ending_turn(&g, 1059), ENDING_DRAIN);
    ending_signal(&g, WISH_DRAIN, false, 1050); /* the same signal again, passed on by another rank: not later */
    assert_int_equal(ending_turn(&g, 1060), ENDING_CUT);
    assert_string_equal(g.cause, "SIGUSR1");
    g = begin(1020, 5, 60, 0); /* the walltime is before the end of draining */
    ending_signal(&g, WISH_DRAIN, true, 1000);
    assert_int_equal(ending_turn(&g, 1014), ENDING_DRAIN);
    assert_int_equal(ending_turn(&g, 1015), ENDING_CUT);
    g = begin(INFINITY, -1, -1, 0); /* without a given time a minute, */
    ending_signal(&g, WISH_DRAIN, true, 1000);
    assert_int_equal(ending_turn(&g, 1059), ENDING_DRAIN);
    assert_int_equal(ending_turn(&g, 1060), ENDING_CUT);
    g = begin(5000, 10, -1, 0); /* or the remaining walltime */
    ending_signal(&g, WISH_DRAIN, true, 1000);
    assert_true(g.until == 4990);
    assert_int_equal(ending_turn(&g, 4989), ENDING_DRAIN);
    assert_int_equal(ending_turn(&g, 4990), ENDING_CUT);
    g = begin(INFINITY, -1, 60, 0); /* mpirun leaves a second */
    ending_signal(&g, WISH_END, false, 1000);
    assert_int_equal(g.state, ENDING_CUT);
    g = begin(INFINITY, -1, 60, 20); /* srun */
    ending_signal(&g, WISH_END, true, 1000);
    assert_int_equal(ending_turn(&g, 1019), ENDING_DRAIN);
    ending_signal(&g, WISH_END, true, 1000.5); /* sent twice */
    ending_signal(&g, WISH_END, false, 1010);  /* from another rank */
    assert_int_equal(ending_turn(&g, 1019), ENDING_DRAIN);
    ending_signal(&g, WISH_END, true, 1019); /* the user is impatient */
    assert_int_equal(g.state, ENDING_CUT);
    g = begin(INFINITY, -1, 60, 20); /* the shorter time counts */
    ending_signal(&g, WISH_DRAIN, true, 1000);
    ending_signal(&g, WISH_END, true, 1010);
    assert_int_equal(ending_turn(&g, 1030), ENDING_CUT);
    g = begin(INFINITY, -1, 60, 20); /* reading the state changes nothing */
    ending_signal(&g, WISH_SYNC, true, 1000);
    ending_signal(&g, WISH_TELL, true, 1000);
    assert_int_equal(ending_turn(&g, 1001), ENDING_RUN);
}

static void status(void **unused)
{
    (void)unused;
    assert_int_equal(ending_status(false, false), 0);
    assert_int_equal(ending_status(false, true), 1);
    assert_int_equal(ending_status(true, false), 75);
    assert_int_equal(ending_status(true, true), 75);
}

static void learn(struct pace *p, int n, double prefill, double decode, int prompt, int output, int max_tokens)
{
    for (int i = 0; i < n; i++)
        pace_learn(p, &(struct pace_sample){prefill, decode, prompt, output, max_tokens});
}

static void the_pace(void **unused)
{
    (void)unused;
    struct pace p;
    pace_open(&p);
    assert_true(pace_need(&p, 10, 1000) == 0); /* nothing is known */
    pace_steps(&p, 10, 5, false);              /* prompts: 0.5 s a step, which says nothing of further tokens */
    assert_true(fabs(pace_need(&p, 10, 101) - 0.5) < 1e-9);
    pace_steps(&p, 20, 6, true); /* 0.1 s a step */
    assert_true(fabs(pace_need(&p, 10, 101) - 10.1) < 1e-9);
    pace_steps(&p, 21, 6.2, true); /* a slow step */
    assert_true(fabs(pace_need(&p, 10, 101) - 10.2) < 1e-9);
    learn(&p, 1, 0.5, 9.9, 100, 100, 200);
    assert_true(fabs(pace_need(&p, 100, 200) - (0.5 + 199 * 0.1)) < 1e-9); /* too few for a share of max_tokens */
    learn(&p, 9, 0.5, 9.9, 100, 100, 200);
    assert_true(fabs(pace_need(&p, 100, 200) - (0.5 + 99 * 0.1)) < 1e-9);
    assert_true(fabs(pace_need(&p, 300, 200) - (1.5 + 99 * 0.1)) < 1e-9); /* a longer prompt */
    assert_true(fabs(pace_need(&p, 10, 200) - (0.5 + 99 * 0.1)) < 1e-9);  /* a shorter one counts as an average one */
    assert_true(fabs(pace_need(&p, 100, 1) - 0.5) < 1e-9);
}

static void the_slow_ones_count_and_the_old_ones_do_not(void **unused)
{
    (void)unused;
    struct pace p;
    pace_open(&p);
    learn(&p, 90, 0.1, 9.9, 10, 100, 100);
    learn(&p, 10, 0.1, 99, 10, 100, 100); /* one of ten is slower */
    learn(&p, 28, 0.1, 9.9, 10, 100, 100);
    assert_true(fabs(pace_need(&p, 10, 100) - 99.1) < 1e-9);
    learn(&p, PACE_RECENT, 0.1, 9.9, 10, 100, 100);
    assert_true(fabs(pace_need(&p, 10, 100) - 10) < 1e-9);
    learn(&p, PACE_RECENT, 0.1, 0, 10, 1, 100); /* one token each: a hundredth of the requested ones */
    assert_true(fabs(pace_need(&p, 10, 100) - 0.1) < 1e-9);
    learn(&p, PACE_RECENT, 0.1, 0, 10, 0, 100); /* no output: nothing to learn from */
    assert_true(fabs(pace_need(&p, 10, 100) - 0.1) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_limit), cmocka_unit_test(the_walltime),
        cmocka_unit_test(signals),  cmocka_unit_test(status),
        cmocka_unit_test(the_pace), cmocka_unit_test(the_slow_ones_count_and_the_old_ones_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
