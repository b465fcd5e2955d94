/* tests/unit/test_scheduler_rules.c - coordinator/schedule/scheduler.c, rule by rule: the sequences that run, are
 * preempted, come next and end, and refused requests. */
#include "tests/unit/unit.h"

#include "tests/support/schedule.h"

static void decode_goes_on_beside_a_long_prompt(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(4, 8, 30);
    struct schedule run;
    schedule_open(&run, &setup);
    schedule_add(&run, &schedule_plain, 3, 1);
    schedule_add(&run, &schedule_plain, 60, 2);
    schedule_step(&run, 0); /* 3 + 5 */
    assert_int_equal(run.plan.n_seqs, 2);
    assert_int_equal(run.plan.seq[1].n_tokens, 5);
    for (int k = 1; k < 8; k++) {
        schedule_step(&run, 0);
        assert_int_equal(run.plan.n_seqs, 2);
        assert_int_equal(run.plan.n_tokens, 8);
        assert_int_equal(run.plan.seq[0].n_tokens, 1);
        assert_int_equal(run.plan.token[0], -1);
        assert_int_equal(run.plan.seq[1].n_tokens, 7);
        assert_int_equal(run.plan.seq[1].sample, 0);
    }
    schedule_step(&run, 0);
    assert_int_equal(run.plan.seq[1].n_tokens, 6);
    assert_int_equal(run.plan.seq[1].sample, 1);
    schedule_drain(&run, 0);
    schedule_close(&run);
}

/* 4 blocks for two sequences that grow to 3 each: the later one is preempted and loses nothing. */
static void the_youngest_is_preempted(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(4, 64, 4);
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct schedule run;
        schedule_open(&run, &setup);
        run.s.setup.prefix_caching = false;
        struct request *first = schedule_add(&run, &schedule_plain, 16, 1),
                       *second = schedule_add(&run, &schedule_plain, 16, 2);
        const int first_index = first->index;
        while (second->n_preempted == 0)
            schedule_step(&run, depth);
        assert_int_equal(first->n_preempted, 0);
        assert_int_equal(second->state, REQUEST_WAITING);
        assert_int_equal(second->held[KV_MAIN].end, 0);
        int had = (int)second->output.n + second->n_in_flight;
        assert_true(had >= 15);
        while (run.request[first_index] != NULL)
            schedule_step(&run, depth);
        while (second->state == REQUEST_WAITING)
            schedule_step(&run, depth);
        assert_int_equal(second->output.n, had + (depth == 0));
        assert_int_equal(run.plan.seq[0].n_tokens, 16 + had); /* prompt and output again, in one chunk */
        schedule_drain(&run, depth);
        assert_int_equal(run.s.stats.n_preemptions, 1);
        schedule_close(&run);
    }
}

static void lower_priority_values_go_first(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(1, 64, 40);
    struct schedule run;
    schedule_open(&run, &setup);
    static const int priority[] = {5, 0, -3, 0, 5, 7};
    struct request *r[6];
    for (int i = 0; i < 6; i++) {
        r[i] = schedule_make(&run, &schedule_plain, (int32_t[]){i, i, i}, 3);
        r[i]->priority = priority[i];
        assert_int_equal(scheduler_add(&run.s, r[i], 0, &(struct err){0}), 0);
    }
    static const int order[] = {2, 1, 3, 0, 4, 5};
    for (int k = 0; k < 6; k++) {
        while (run.s.n_running == 0)
            schedule_step(&run, 0);
        assert_int_equal(run.s.running[0]->index, order[k]);
        while (run.n_released == k)
            schedule_step(&run, 0);
    }
    schedule_drain(&run, 0);
    schedule_close(&run);
}

/* Under pressure the one with the highest value is preempted, however early it came. */
static void priority_decides_who_is_preempted(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(4, 64, 4);
    struct schedule run;
    schedule_open(&run, &setup);
    struct request *low = schedule_make(&run, &schedule_plain, (int32_t[16]){1}, 16),
                   *high = schedule_make(&run, &schedule_plain, (int32_t[16]){2}, 16);
    low->priority = 9;
    assert_int_equal(scheduler_add(&run.s, low, 0, &(struct err){0}), 0);
    schedule_step(&run, 0);
    assert_int_equal(scheduler_add(&run.s, high, 0, &(struct err){0}), 0);
    while (low->n_preempted == 0)
        schedule_step(&run, 0);
    assert_int_equal(high->n_preempted, 0);
    schedule_drain(&run, 0);
    schedule_close(&run);
}

static void the_queue_is_bounded(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(1, 64, 40);
    struct err e = {0};
    struct schedule run;
    setup.max_waiting = 2;
    schedule_open(&run, &setup);
    struct request *first = schedule_add(&run, &schedule_plain, 4, 1);
    schedule_add(&run, &schedule_plain, 4, 2);
    struct request *r = schedule_make(&run, &schedule_plain, (int32_t[]){1, 2}, 2);
    assert_int_equal(scheduler_add(&run.s, r, 0, &e), SCHEDULER_FULL);
    assert_null(r->held[KV_MAIN].block);
    expect_none(&e);
    schedule_step(&run, 0); /* the first one runs, so there is room */
    assert_int_equal(first->state, REQUEST_RUNNING);
    assert_int_equal(scheduler_add(&run.s, r, 0, &e), 0);
    schedule_drain(&run, 0);
    schedule_close(&run);
}

static void deadlines_end_requests(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(1, 64, 40);
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct schedule run;
        schedule_open(&run, &setup);
        struct request *running = schedule_make(&run, &schedule_plain, (int32_t[]){1}, 1),
                       *waiting = schedule_make(&run, &schedule_plain, (int32_t[]){2}, 1),
                       *later = schedule_make(&run, &schedule_plain, (int32_t[]){3}, 1);
        running->deadline = 6;
        waiting->deadline = 4;
        for (int i = 0; i < 3; i++)
            assert_int_equal(scheduler_add(&run.s, run.request[i], 0, &(struct err){0}), 0);
        while (run.now < 3)
            schedule_step(&run, depth);
        assert_int_equal(run.n_ended[FINISH_TIMEOUT], 0);
        schedule_step(&run, depth);
        assert_int_equal(run.n_ended[FINISH_TIMEOUT], 1);
        assert_null(run.request[1]);
        schedule_step(&run, depth);
        assert_int_equal(running->finish, FINISH_NONE);
        schedule_step(&run, depth); /* it ends, and the next one starts in the same plan */
        assert_int_equal(later->state, REQUEST_RUNNING);
        schedule_drain(&run, depth);
        assert_int_equal(run.n_ended[FINISH_TIMEOUT], 2);
        schedule_close(&run);
    }
}

/* Blocks are free for the plan after the next step at the latest; here for the very next plan. */
static void cancelling_frees_the_blocks(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(2, 64, 8);
    struct schedule run;
    struct request_rules rules = schedule_plain;
    rules.max_tokens = 60;
    schedule_open(&run, &setup);
    struct request *r = schedule_add(&run, &rules, 60, 1);
    schedule_step(&run, 1);
    schedule_step(&run, 1);
    assert_int_equal(r->n_in_flight, 1);
    assert_true(run.s.blocks[KV_MAIN].n_free <= 4);
    scheduler_cancel(&run.s, r, FINISH_CANCELLED, run.now);
    assert_int_equal(run.s.blocks[KV_MAIN].n_free, 8);
    assert_int_equal(run.s.n_running, 0);
    assert_int_equal(run.n_released, 0); /* a result is still in flight */
    schedule_add(&run, &rules, 60, 2);
    schedule_step(&run, 1);
    assert_int_equal(run.s.n_running, 1);
    assert_int_equal(run.n_released, 1);
    schedule_drain(&run, 1);
    schedule_close(&run);
}

static void one_slot_one_token(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(1, 1, 9);
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct schedule run;
        schedule_open(&run, &setup);
        for (int i = 0; i < 4; i++)
            schedule_add(&run, &schedule_plain, 20, (uint64_t)i);
        schedule_drain(&run, depth);
        schedule_close(&run);
    }
}

static void refuses_results_of_another_step(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(2, 8, 9);
    struct schedule run;
    struct err e = {0};
    schedule_open(&run, &setup);
    schedule_add(&run, &schedule_plain, 3, 1);
    schedule_plan(&run);
    struct step_result other = run.queue[0];
    other.step = 2;
    assert_int_equal(scheduler_accept(&run.s, &other, 0, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "results of step 2: 1 tokens, expected 1 of step 0");
    other = run.queue[0];
    other.n_sampled = 0;
    e = (struct err){0};
    assert_int_equal(scheduler_accept(&run.s, &other, 0, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "results of step 0: 0 tokens, expected 1");
    schedule_accept(&run);
    schedule_drain(&run, 0);
    schedule_close(&run);
}

static void refuses_limits_that_starve(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(8, 7, 9);
    struct scheduler s;
    struct err e = {0};
    assert_int_equal(scheduler_open(&s, &setup, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "7 tokens per step", "8 sequences");
    scheduler_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_goes_on_beside_a_long_prompt),
        cmocka_unit_test(the_youngest_is_preempted),
        cmocka_unit_test(lower_priority_values_go_first),
        cmocka_unit_test(priority_decides_who_is_preempted),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(deadlines_end_requests),
        cmocka_unit_test(cancelling_frees_the_blocks),
        cmocka_unit_test(one_slot_one_token),
        cmocka_unit_test(refuses_results_of_another_step),
        cmocka_unit_test(refuses_limits_that_starve),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
