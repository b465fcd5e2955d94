/* tests/unit/test_lanes.c - coordinator/tasks/lanes.c on devices of paper that are one step behind: models take turns
 * by tokens, whatever each has to do; a model that comes late, or was idle, gets no more than its share from then on;
 * every output is right; a lane ends and begins anew while others run. */
#include "tests/unit/unit.h"

#include "coordinator/tasks/lanes.h"
#include "coordinator/tasks/mailbox.h"
#include "tests/support/paper.h"
#include "tests/support/reports.h"

#include <stdlib.h>
#include <zmq.h>

#define VOCAB    50
#define MAX_LEN  64
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
    .limits = {.max_seqs = 4, .max_batch_tokens = STEP, .max_len = MAX_LEN, .max_logit_rows = 4, .n_blocks = 16},
    .prefix_caching = true};

static void start(struct bench *b, int lane)
{
    struct err e = {0};
    assert_int_equal(paper_open(&b->paper[lane], &setup.limits, VOCAB, &e), 0);
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
    static const struct served served = {.model = {.name = "paper", .vocab = VOCAB}};
    const int32_t prompt[3] = {(int32_t)(number % VOCAB), 2, 3};
    char text[200];
    int n = snprintf(text, sizeof text,
                     "{\"prompt\": [%d, 2, 3], \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": 0}",
                     (int)(number % VOCAB), max_tokens);
    zmq_msg_t body;
    assert_int_equal(zmq_msg_init_size(&body, (size_t)n), 0);
    memcpy(zmq_msg_data(&body), text, (size_t)n);
    struct task *task = task_open(number, &body, false, 0);
    task->served = &served;
    task_read(task);
    task_check(task);
    assert_int_equal(task->error.code, 0);
    task->ids = calloc(1, sizeof *task->ids);
    task->n_ids = 1;
    task->ids[0] = (struct token_list){.id = malloc(sizeof prompt), .n = 3, .capacity = 3};
    memcpy(task->ids[0].id, prompt, sizeof prompt);
    assert_int_equal(task_prepare(task, MAX_LEN, 1 << 20, 1), 0);
    struct order *o = malloc(sizeof *o);
    *o = (struct order){.kind = ORDER_SUBMIT, .task = task};
    assert_true(mailbox_post(b->end[lane][0], o));
}

static void check_task(const struct task *task, int n_tokens)
{
    const struct request *r = task->choices[0].choice[0];
    int32_t token[MAX_LEN] = {(int32_t)(task->number % VOCAB), 2, 3};
    assert_int_equal(r->output.n, n_tokens);
    for (int i = 0; i < n_tokens; i++) {
        struct sampled s;
        token[3 + i] = paper_next(token, 3 + i, 3, &task->rules[0].sampling, VOCAB, &s);
        assert_int_equal(r->output.id[i], token[3 + i]);
    }
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
    start(&b, 0);
    start(&b, 1);
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
    start(&b, 2);
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
            check_task(b.back[i], i >= 20 && i < 24 ? 50 : 40);
    assert_int_equal(b.n_back, 44);
    close_bench(&b);
}

/* One of them ends while another has a step in flight, and begins anew. */
static void coming_and_going(void **state)
{
    (void)state;
    static struct bench b;
    open_bench(&b);
    start(&b, 0);
    assert_non_null(lanes_first(&b.lanes));
    for (uint64_t round = 0; round < 10; round++) {
        start(&b, 1);
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
        check_task(b.back[10 * round], 30);
        check_task(b.back[10 * round + 1], 5);
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
