/* tests/unit/test_watch.c - rank/watch/watch.c: the time at which a rank counts as late, and the rank that is
 * blamed. */
#include "tests/unit/unit.h"

#include "rank/watch/lifeline.h"
#include "rank/watch/verdict.h"

#define TIMEOUT 10.0

/* Ranks 2, 0 and 5 of a larger job on one host, all healthy: 2 and 5 have waited in a collective for 0, but not for
 * long. */
static void fill(struct watch_view v[3])
{
    v[0] = (struct watch_view){2, RANK_IN_COLLECTIVE, 57, 0, 0, 0};
    v[1] = (struct watch_view){0, RANK_WORKS, 57, 0, 0, 0};
    v[2] = (struct watch_view){5, RANK_IN_COLLECTIVE, 57, 0, 0, 0};
}

static void nothing_is_wrong(void **unused)
{
    (void)unused;
    struct watch_view v[3];
    fill(v);
    for (int self = 0; self < 3; self++) {
        assert_int_equal(verdict_find(v, 3, self, TIMEOUT), -1);
        v[self].stalled = 9.9;
        assert_int_equal(verdict_find(v, 3, self, TIMEOUT), -1);
        v[self].stalled = 1000;
        v[self].activity = RANK_OUTSIDE;
        assert_int_equal(verdict_find(v, 3, self, TIMEOUT), -1);
    }
    fill(v);
    v[2].silent = v[2].stalled = 100; /* stopped, but no rank waits for it yet */
    assert_int_equal(verdict_find(v, 3, 0, TIMEOUT), -1);
}

static void a_silent_one_is_to_blame(void **unused)
{
    (void)unused;
    struct watch_view v[3];
    fill(v);
    v[0].stalled = v[1].stalled = v[2].stalled = 10;
    v[2].silent = 9;
    assert_int_equal(verdict_find(v, 3, 0, TIMEOUT), 2);
    assert_int_equal(verdict_find(v, 3, 1, TIMEOUT), 2);
    v[1].silent = 9.5;
    assert_int_equal(verdict_find(v, 3, 0, TIMEOUT), 1);
    v[1].silent = v[2].silent = 1; /* a moment on a busy machine */
    assert_int_equal(verdict_find(v, 3, 0, TIMEOUT), 1);
}

static void one_that_works_on_is_to_blame(void **unused)
{
    (void)unused;
    struct watch_view v[3];
    fill(v);
    v[0].stalled = v[1].stalled = v[2].stalled = 10;
    for (int self = 0; self < 3; self++)
        assert_int_equal(verdict_find(v, 3, self, TIMEOUT), 1);
    v[1].activity = RANK_AWAITS_DEVICE; /* all wait: the cause is on another host, or a device itself */
    for (int self = 0; self < 3; self++)
        assert_int_equal(verdict_find(v, 3, self, TIMEOUT), self);
}

/* Rank 0 may wait for work as long as it lives. */
static void waiting_for_a_plan(void **unused)
{
    (void)unused;
    struct watch_view v[3];
    fill(v);
    for (int i = 0; i < 3; i++)
        v[i] = (struct watch_view){v[i].rank, RANK_AWAITS_PLAN, 58, 1e6, 0, 0};
    v[1].activity = RANK_COORDINATES;
    for (int self = 0; self < 3; self++)
        assert_int_equal(verdict_find(v, 3, self, TIMEOUT), -1);
    v[1].silent = 10;
    assert_int_equal(verdict_find(v, 3, 0, TIMEOUT), 1);
    assert_int_equal(verdict_find(v, 3, 2, TIMEOUT), 1);
    v[1].silent = 0;
    v[1].activity = RANK_AWAITS_PLAN; /* it shares the plan, and one rank does not receive it */
    v[2].silent = 10;
    assert_int_equal(verdict_find(v, 3, 0, TIMEOUT), -1); /* rank 0 will report it */
    assert_int_equal(verdict_find(v, 3, 1, TIMEOUT), 2);
    struct watch_view elsewhere[2] = {{3, RANK_AWAITS_PLAN, 58, 1e6, 0, 0}, {4, RANK_AWAITS_PLAN, 58, 1e6, 1e6, 0}};
    assert_int_equal(verdict_find(elsewhere, 2, 0, TIMEOUT), -1); /* rank 0 is on a host that this one cannot observe */
}

/* Ranks 0-1 and 2-3 of one host are two replicas: the last rank of the second is stopped. */
static void replicas_do_not_wait_for_each_other(void **unused)
{
    (void)unused;
    struct watch_view v[4] = {{0, RANK_COORDINATES, 9, 1e6, 0, 0},
                              {1, RANK_AWAITS_PLAN, 9, 1e6, 0, 0},
                              {2, RANK_IN_COLLECTIVE, 57, 11, 0, 2},
                              {3, RANK_IN_COLLECTIVE, 57, 11, 11, 2}};
    assert_int_equal(verdict_find(v, 4, 0, TIMEOUT), -1);
    assert_int_equal(verdict_find(v, 4, 1, TIMEOUT), -1);
    assert_int_equal(verdict_find(v, 4, 2, TIMEOUT), 3);
    /* The second replica is not blamed for a delay in the first. */
    v[0] = (struct watch_view){0, RANK_WORKS, 9, 11, 0, 0};
    v[1] = (struct watch_view){1, RANK_IN_COLLECTIVE, 9, 11, 0, 0};
    assert_int_equal(verdict_find(v, 4, 1, TIMEOUT), 0);
    assert_int_equal(verdict_find(v, 4, 0, TIMEOUT), 0);
    /* A leader between steps has no deadline, nor have ranks that wait for its plan, as long as it lives. */
    v[2] = (struct watch_view){2, RANK_COORDINATES, 57, 1e6, 0, 2};
    v[3] = (struct watch_view){3, RANK_AWAITS_PLAN, 57, 1e6, 0, 2};
    assert_int_equal(verdict_find(v, 4, 2, TIMEOUT), -1);
    assert_int_equal(verdict_find(v, 4, 3, TIMEOUT), -1);
    v[2].silent = 11;
    assert_int_equal(verdict_find(v, 4, 3, TIMEOUT), 2);
}

static void words(void **unused)
{
    (void)unused;
    char text[300];
    struct watch_view v = {1, RANK_WORKS, 57, 10, 9.8, 0};
    verdict_say(text, sizeof text, &v, false, TIMEOUT);
    assert_string_equal(text,
                        "step 57 has made no progress for 10 s (--step-timeout): no sign of life for 10 s, it was "
                        "computing");
    v.silent = 0;
    verdict_say(text, sizeof text, &v, true, 0.5);
    assert_string_equal(text, "step 57 has made no progress for 0.5 s (--step-timeout): still computing");
    v.activity = RANK_AWAITS_DEVICE;
    verdict_say(text, sizeof text, &v, true, TIMEOUT);
    assert_string_equal(text, "step 57 has made no progress for 10 s (--step-timeout): waiting for the device, and no "
                              "rank of this host appears to be at fault");
}

static void gone(void **unused)
{
    (void)unused;
    char text[360];
    struct lifeline_state at = {
        .activity = RANK_WORKS, .last = COLLECTIVE_ALL_REDUCE, .step = 57, .last_step = 57, .n_last = 12};
    verdict_say_gone(text, sizeof text, false, &at, "0000:1a:00.0");
    assert_non_null(strstr(text, "ended without a word"));
    assert_non_null(strstr(text, "step 57, computing; last collective: all-reduce 12 of step 57; device 0000:1a:00.0"));
    at = (struct lifeline_state){.activity = RANK_AWAITS_PLAN, .last = COLLECTIVE_PLAN, .step = 58, .last_step = 58};
    verdict_say_gone(text, sizeof text, true, &at, "cpu");
    assert_non_null(strstr(text, "its host has not answered for"));
    assert_non_null(strstr(text, "step 58, waiting for the plan; last collective: the plan's broadcast of step 58"));
    at = (struct lifeline_state){.activity = RANK_OUTSIDE};
    verdict_say_gone(text, sizeof text, true, &at, "cpu");
    assert_non_null(strstr(text, "outside of steps; last collective: none yet; device cpu"));
    verdict_say_gone(text, sizeof text, true, NULL, "cpu");
    assert_non_null(strstr(text, "its last state is not known; device cpu"));
    at = (struct lifeline_state){.activity = 4711, .last = -3}; /* received over a network */
    verdict_say_gone(text, sizeof text, true, &at, "cpu");
    assert_non_null(strstr(text, "?"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_wrong),
        cmocka_unit_test(a_silent_one_is_to_blame),
        cmocka_unit_test(one_that_works_on_is_to_blame),
        cmocka_unit_test(waiting_for_a_plan),
        cmocka_unit_test(replicas_do_not_wait_for_each_other),
        cmocka_unit_test(words),
        cmocka_unit_test(gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
