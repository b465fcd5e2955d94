/* tests/unit/test_steps.c - coordinator/tasks/steps.c on a paper device that is one step behind, as a GPU is: tasks
 * come and are cancelled while steps are in flight, the engine becomes idle with an empty plan in flight, and goes
 * on. */
#include "tests/unit/orders.h"

#include "tests/support/reports.h"

#define MAX_JOBS 64

struct bench {
    void *context, *end[2]; /* the test's end, the steps' end */
    struct steps steps;
    struct paper paper;
    struct plan plan;
    struct step_result result[2]; /* of the steps in flight, by step % 2 */
    uint64_t step;
    int under_way, n_idle;
    struct task *back[MAX_JOBS]; /* by number; NULL: not yet */
};

static void open_bench(struct bench *b)
{
    struct err e = {0};
    const struct scheduler_setup setup = {.limits = {.max_seqs = 4,
                                                     .max_batch_tokens = 16,
                                                     .max_len = ORDERS_MAX_LEN,
                                                     .max_logit_rows = 4,
                                                     .n_blocks = 12},
                                          .prefix_caching = true};
    memset(b, 0, sizeof *b);
    b->context = zmq_ctx_new();
    assert_int_equal(mailbox_open(b->context, "steps", b->end, &e), 0);
    assert_int_equal(paper_open(&b->paper, &setup.limits, ORDERS_VOCAB, &e), 0);
    assert_int_equal(plan_open(&b->plan, &setup.limits, &e), 0);
    assert_int_equal(steps_open(&b->steps, b->end[1], &setup, &e), 0);
}

static void hear(struct bench *b)
{
    (void)reports_take(b->end[0], b->back);
}

static void take_plan(struct bench *b)
{
    struct err e = {0};
    const struct step_result *oldest = &b->result[(b->step - (uint64_t)b->under_way) % 2];
    b->under_way--;
    if (steps_accept(&b->steps, oldest, &e) != 0)
        fail_msg("%s", e.text);
}

/* Acts as rank/step/loop.c on a device: a plan is sent while the one before it is in flight. false: idle, or
 * stopped. */
static bool turn(struct bench *b)
{
    struct err e = {0};
    plan_reset(&b->plan, b->step);
    int next = steps_next(&b->steps, &b->plan, &e);
    assert_int_not_equal(next, -1);
    if (next == PLAN_IDLE || b->plan.kind == PLAN_STOP) {
        b->n_idle += next == PLAN_IDLE;
        hear(b);
        return false;
    }
    const char *wrong = paper_execute(&b->paper, &b->plan, &b->result[b->step % 2]);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    b->step++;
    if (++b->under_way == 2)
        take_plan(b);
    hear(b);
    return true;
}

static void post(struct bench *b, struct order order)
{
    orders_post(b->end[0], order);
}

static void submit(struct bench *b, uint64_t number)
{
    orders_submit(b->end[0], number, 20);
}

/* Checks the output: all expected tokens, or, if it was cancelled, the first ones. */
static void check_task(const struct task *task, bool cancelled)
{
    int n = orders_check_output(task);
    assert_int_equal(task->choices[0].finish, cancelled ? FINISH_CANCELLED : FINISH_STOP);
    assert_true(cancelled || n == 20);
}

static void close_bench(struct bench *b)
{
    while (b->under_way > 0)
        take_plan(b);
    steps_close(&b->steps);
    hear(b);
    for (int i = 0; i < MAX_JOBS; i++)
        task_close(b->back[i]);
    mailbox_close(&b->end[0]);
    mailbox_close(&b->end[1]);
    zmq_ctx_term(b->context);
    plan_close(&b->plan);
    paper_close(&b->paper);
}

/* Runs tasks 1 to 6 of a round; `n_cancelled` of them are cancelled after a few steps. Then the engine becomes idle. */
static void round_of(struct bench *b, uint64_t first, int n_cancelled, int steps_before)
{
    for (uint64_t i = 0; i < 6; i++)
        submit(b, first + i);
    for (int i = 0; i < steps_before; i++)
        assert_true(turn(b));
    for (int i = 0; i < n_cancelled; i++)
        post(b, (struct order){.kind = ORDER_CANCEL, .number = first + (uint64_t)i, .why = FINISH_CANCELLED});
    while (turn(b))
        ;
    for (uint64_t i = 0; i < 6; i++) {
        assert_non_null(b->back[first + i]);
        check_task(b->back[first + i], (int)i < n_cancelled);
    }
    assert_int_equal(scheduler_stats(&b->steps.scheduler).n_blocks_used, 0);
}

static void falls_idle_and_goes_on(void **state)
{
    (void)state;
    static struct bench b;
    open_bench(&b);
    round_of(&b, 1, 0, 0);  /* all finish */
    round_of(&b, 11, 6, 5); /* all are cancelled while a step with them is in flight */
    round_of(&b, 21, 3, 4);
    round_of(&b, 31, 6, 0); /* before any of them ran */
    round_of(&b, 41, 1, 8);
    assert_int_equal(b.n_idle, 5);
    close_bench(&b);
}

static bool has_come(const struct bench *b, uint64_t number)
{
    return b->back[number] != NULL;
}

/* Opens it with tasks 1 to 6, of which four run (max_seqs) and two wait. */
static void open_with_six(struct bench *b)
{
    open_bench(b);
    for (uint64_t i = 1; i < 7; i++)
        submit(b, i);
    for (int i = 0; i < 3; i++)
        assert_true(turn(b));
}

/* Only the two that wait can be withdrawn. */
static void withdraws_what_has_not_begun(void **state)
{
    (void)state;
    static struct bench b;
    open_with_six(&b);
    for (uint64_t i = 1; i < 6; i++)
        post(&b, (struct order){.kind = ORDER_WITHDRAW, .number = i});
    post(&b, (struct order){.kind = ORDER_WITHDRAW, .number = 60}); /* no such task */
    assert_true(turn(&b));
    for (uint64_t i = 1; i < 7; i++)
        assert_int_equal(has_come(&b, i), i == 5);
    submit(&b, 7);
    post(&b, (struct order){.kind = ORDER_WITHDRAW, .number = 0}); /* all existing tasks */
    while (turn(&b))
        ;
    for (uint64_t i = 1; i < 8; i++) {
        assert_true(has_come(&b, i));
        check_task(b.back[i], i >= 5);
        assert_int_equal(b.back[i]->choices[0].choice[0]->output.n, i >= 5 ? 0 : 20);
    }
    close_bench(&b);
}

static void stops_with_work_under_way(void **state)
{
    (void)state;
    static struct bench b;
    open_with_six(&b);
    post(&b, (struct order){.kind = ORDER_STOP});
    assert_false(turn(&b));
    while (b.under_way > 0)
        take_plan(&b);
    struct task *const *back = b.back;
    steps_close(&b.steps);
    hear(&b);
    for (int i = 1; i < 7; i++) {
        assert_non_null(back[i]);
        check_task(back[i], true);
    }
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(falls_idle_and_goes_on),
        cmocka_unit_test(withdraws_what_has_not_begun),
        cmocka_unit_test(stops_with_work_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
