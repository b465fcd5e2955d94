/* tests/unit/test_lanes.c - coordinator/tasks/lanes.c on devices of paper that are one step behind: models take turns
 * by tokens, whatever each has to do; a model that comes late, or was idle, gets no more than its share from then on;
 * every output is right; a lane ends and begins anew while others run. */
#include "tests/unit/orders.h"

#include "coordinator/tasks/lanes.h"
#include "tests/support/reports.h"

#define LANES    3
#define MAX_JOBS 200
#define STEP     16 /* most tokens of a step */

struct bench {
    void *context, *end[LANES][2];
    struct lanes lanes;
    struct paper paper[LANES];
    struct plan plan;
    struct step_result result[2];
    uint64_t step;
    int under_way;
    struct task *back[MAX_JOBS];
    int n_back;
    double tokens[LANES]; /* that its plans had */
};

static const struct scheduler_setup setup = {
    .limits = {.max_seqs = 4, .max_batch_tokens = STEP, .max_len = ORDERS_MAX_LEN, .max_logit_rows = 4, .n_blocks = 16},
    .prefix_caching = true};

static void start_lane(struct bench *b, int lane)
{
    struct err e = {0};
    assert_int_equal(paper_open(&b->paper[lane], &setup.limits, ORDERS_VOCAB, &e), 0);
    assert_int_equal(lanes_start(&b->lanes, lane, b->end[lane][1], &setup, NULL, &e), 0);
}

static void open_bench(struct bench *b)
{
    struct err e = {0};
    memset(b, 0, sizeof *b);
    b->context = zmq_ctx_new();
    for (int i = 0; i < LANES; i++) {
        char name[20];
        (void)snprintf(name, sizeof name, "lane-%d", i);
        assert_int_equal(mailbox_open(b->context, name, b->end[i], &e), 0);
    }
    assert_int_equal(plan_open(&b->plan, &setup.limits, &e), 0);
    assert_int_equal(lanes_open(&b->lanes, LANES, NULL, &e), 0);
}

static void hear(struct bench *b)
{
    for (int i = 0; i < LANES; i++)
        b->n_back += reports_take(b->end[i][0], b->back);
}

static void take_oldest(struct bench *b)
{
    struct err e = {0};
    const struct step_result *oldest = &b->result[(b->step - (uint64_t)b->under_way) % 2];
    b->under_way--;
    if (lanes_accept(&b->lanes, oldest, &e) != 0)
        fail_msg("%s", e.text);
}

/* false: idle. */
static bool turn(struct bench *b)
{
    struct err e = {0};
    plan_reset(&b->plan, b->step);
    int next = lanes_next(&b->lanes, &b->plan, true, &e);
    assert_int_not_equal(next, -1);
    assert_int_equal(b->plan.kind, PLAN_STEP);
    if (next == PLAN_IDLE) {
        hear(b);
        return false;
    }
    int model = b->plan.model;
    const char *wrong = paper_execute(&b->paper[model], &b->plan, &b->result[b->step % 2]);
    if (wrong != NULL)
        fail_msg("lane %d: %s", model, wrong);
    b->result[b->step % 2].model = model;
    b->tokens[model] += b->plan.n_tokens;
    b->step++;
    if (++b->under_way == 2)
        take_oldest(b);
    hear(b);
    return true;
}

static void submit(struct bench *b, int lane, uint64_t number, int max_tokens)
{
    orders_submit(b->end[lane][0], number, max_tokens);
}

static void close_bench(struct bench *b)
{
    while (b->under_way > 0)
        take_oldest(b);
    lanes_close(&b->lanes);
    hear(b);
    for (int i = 0; i < MAX_JOBS; i++)
        task_close(b->back[i]);
    for (int i = 0; i < LANES; i++) {
        paper_close(&b->paper[i]);
        for (int k = 0; k < 2; k++)
            mailbox_close(&b->end[i][k]);
    }
    zmq_ctx_term(b->context);
    plan_close(&b->plan);
}

static void expect_shares(const struct bench *b, int one, int other)
{
    double difference = b->tokens[one] - b->tokens[other];
    if (difference > 2 * STEP || difference < -2 * STEP)
        fail_msg("lane %d had %g tokens, lane %d %g", one, b->tokens[one], other, b->tokens[other]);
}

/* One lane with four sequences at once, one with a single one: both get the same tokens while both want some. */
static void equal_shares(void **state)
{
    (void)state;
    static struct bench b;
    open_bench(&b);
    start_lane(&b, 0);
    start_lane(&b, 1);
    for (uint64_t i = 0; i < 20; i++)
        submit(&b, 0, i, 40);
    for (uint64_t i = 20; i < 24; i++)
        submit(&b, 1, i, 50);
    for (int k = 0; k < 150; k++) {
        assert_true(turn(&b));
        if (b.tokens[1] < 200) /* it has 212 to generate */
            expect_shares(&b, 0, 1);
    }
    /* The third comes after the others have had many tokens: it does not catch up. */
    start_lane(&b, 2);
    for (uint64_t i = 30; i < 50; i++)
        submit(&b, 2, i, 40);
    double before = b.tokens[0];
    memset(b.tokens, 0, sizeof b.tokens);
    for (int k = 0; k < 60; k++)
        assert_true(turn(&b));
    assert_true(before > 0);
    expect_shares(&b, 0, 2);
    while (turn(&b))
        ;
    for (int i = 0; i < 50; i++)
        if (b.back[i] != NULL)
            assert_int_equal(orders_check_output(b.back[i]), i >= 20 && i < 24 ? 50 : 40);
    assert_int_equal(b.n_back, 44);
    close_bench(&b);
}

/* One of them ends while another has a step in flight, and begins anew. */
static void coming_and_going(void **state)
{
    (void)state;
    static struct bench b;
    open_bench(&b);
    start_lane(&b, 0);
    assert_non_null(lanes_first(&b.lanes));
    for (uint64_t round = 0; round < 10; round++) {
        start_lane(&b, 1);
        submit(&b, 0, 10 * round, 30);
        submit(&b, 1, 10 * round + 1, 5);
        while (b.back[10 * round + 1] == NULL)
            assert_true(turn(&b));
        while (b.under_way > 0) /* as the loop does before models change */
            take_oldest(&b);
        hear(&b);
        lanes_end(&b.lanes, 1);
        paper_close(&b.paper[1]);
        while (turn(&b))
            ;
        assert_int_equal(orders_check_output(b.back[10 * round]), 30);
        assert_int_equal(orders_check_output(b.back[10 * round + 1]), 5);
    }
    while (b.under_way > 0)
        take_oldest(&b);
    lanes_end(&b.lanes, 0);
    assert_null(lanes_first(&b.lanes));
    assert_false(turn(&b));
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_shares), cmocka_unit_test(coming_and_going)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
