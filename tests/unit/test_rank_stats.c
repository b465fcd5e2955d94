/* tests/unit/test_rank_stats.c - plan/rank_stats.c: means, the slowest rank, and unknown values that stay unknown. */
#include "tests/unit/unit.h"

#include "plan/rank_stats.h"

#include <math.h>

static void means(void **unused)
{
    (void)unused;
    const struct rank_stats s = {.n_steps = 9,
                                 .n_timed = 4,
                                 .step_seconds = 2,
                                 .n_parted = 2,
                                 .parted_seconds = 1.5,
                                 .all_reduce_seconds = 0.5,
                                 .all_gather_seconds = 0.25};
    assert_true(rank_stats_step(&s) == 0.5);
    assert_true(rank_stats_all_reduce(&s) == 0.25);
    assert_true(rank_stats_compute(&s) == 0.375);
    const struct rank_stats unknown = {.n_steps = 9, .n_timed = 1, .step_seconds = 2};
    assert_true(rank_stats_step(&unknown) == 2);
    assert_true(isnan(rank_stats_all_reduce(&unknown)) && isnan(rank_stats_compute(&unknown)));
    assert_true(isnan(rank_stats_step(&(struct rank_stats){.n_steps = 9})));
}

static void the_slowest(void **unused)
{
    (void)unused;
    /* The slowest is not the one that waits least: rank 2 waits as long as rank 0, but its steps were longer. */
    struct rank_stats s[3] = {
        {.n_parted = 10, .parted_seconds = 20, .all_reduce_seconds = 5},
        {.n_parted = 10, .parted_seconds = 20, .all_reduce_seconds = 9, .all_gather_seconds = 1},
        {.n_parted = 20, .parted_seconds = 42, .all_reduce_seconds = 5},
    };
    assert_int_equal(rank_stats_slowest(s, 3), 2);
    assert_int_equal(rank_stats_slowest(s, 2), 0);
    assert_int_equal(rank_stats_slowest(s, 1), -1);
    s[1].n_parted = 0;
    assert_int_equal(rank_stats_slowest(s, 3), -1);
}

/* A value that one rank does not know stays unknown. */
static void energy(void **unused)
{
    (void)unused;
    struct rank_stats s[2] = {{.joules = 1.5}, {.joules = 2}};
    assert_true(rank_stats_joules(s, 2) == 3.5 && rank_stats_joules(s, 1) == 1.5);
    s[1].joules = NAN;
    assert_true(isnan(rank_stats_joules(s, 2)) && rank_stats_joules(s, 1) == 1.5);
    const struct rank_stats now = {.joules = 4};
    assert_true(rank_stats_since(&now, &s[0]).joules == 2.5);
}

static void differences(void **unused)
{
    (void)unused;
    const struct rank_stats before = {
        .host = "h", .pid = 3, .n_steps = 1, .n_late = 1, .n_waited = 1, .n_timed = 1, .step_seconds = 1};
    const struct rank_stats now = {.host = "h",
                                   .pid = 3,
                                   .n_steps = 5,
                                   .n_late = 4,
                                   .n_waited = 3,
                                   .n_timed = 3,
                                   .step_seconds = 2.5,
                                   .n_parted = 1,
                                   .parted_seconds = 1,
                                   .all_reduce_seconds = 0.5,
                                   .all_gather_seconds = 0.25};
    struct rank_stats d = rank_stats_since(&now, &before);
    assert_string_equal(d.host, "h");
    assert_int_equal(d.n_steps, 4);
    assert_int_equal(d.n_late, 3);
    assert_int_equal(d.n_waited, 2);
    assert_int_equal(d.n_timed, 2);
    assert_int_equal(d.n_parted, 1);
    assert_true(d.step_seconds == 1.5 && d.parted_seconds == 1 && d.all_reduce_seconds == 0.5 &&
                d.all_gather_seconds == 0.25);
}

static void who_diverges(void **unused)
{
    (void)unused;
    struct rank_stats s[4] = {{.n_steps = 1}};
    bool known = false;
    for (int r = 0; r < 4; r++)
        for (int t = 0; t < 10; t++)
            rank_stats_digest(&s[r], t % 3, 100 + t);
    assert_int_equal(rank_stats_diverged(s, 4, &known), -1);
    rank_stats_digest(&s[2], 0, 7);
    assert_int_equal(rank_stats_diverged(s, 4, &known), 2);
    assert_true(known);
    assert_int_equal(rank_stats_diverged(s, 2, &known), -1);
    rank_stats_digest(&s[3], 7, 0); /* slot and token are not the same thing; no majority is left */
    assert_int_equal(rank_stats_diverged(s, 4, &known), 2);
    assert_false(known);
    assert_int_equal(rank_stats_diverged(s + 2, 2, &known), 1);
    assert_false(known);
    rank_stats_digest(&s[1], 0, 7);
    rank_stats_digest(&s[3], 0, 7);
    s[3] = s[2];
    assert_int_equal(rank_stats_diverged(s, 4, &known), 0); /* three agree against rank 0 */
    assert_true(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_diverges), cmocka_unit_test(means),       cmocka_unit_test(the_slowest),
        cmocka_unit_test(energy),       cmocka_unit_test(differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
