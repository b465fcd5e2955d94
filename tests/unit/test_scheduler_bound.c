/* tests/unit/test_scheduler_bound.c - coordinator/schedule/scheduler.c with max_step, on a device whose steps take
 * time: prompts are cut to the tokens that fit beside decoding sequences, and still progress. */
#include "tests/unit/unit.h"

#include "tests/support/schedule.h"
#include "tests/unit/letters.h"

#include <math.h>

enum { LEAST = 32, LEARN = 8 }; /* tokens; steps with prompts and rows that are not checked */

/* A run with the device's clock: a step is in flight while the next one is planned. */
struct timed {
    struct schedule run;
    double finished[2]; /* end times of steps */
    int n_mixed, n_late, n_cut;
    double highest; /* longest checked mixed step, in seconds */
    int most;       /* prompt tokens in it */
};

struct load {
    int tokens, rows;
};

static struct load load_of(const struct plan *p)
{
    struct load l = {0};
    for (int i = 0; i < p->n_seqs; i++) {
        bool decodes = p->seq[i].n_tokens == p->seq[i].sample;
        l.rows += decodes ? p->seq[i].n_tokens : 0;
        l.tokens += decodes ? 0 : p->seq[i].n_tokens;
    }
    return l;
}

static double seconds_of(const struct load *l)
{
    return 0.01 + 1e-3 * l->tokens + 0.5e-3 * l->rows;
}

static void judge(struct timed *t, const struct load *l, double seconds)
{
    if (l->tokens == 0 || l->rows == 0 || t->n_mixed++ < LEARN)
        return;
    t->highest = fmax(t->highest, seconds);
    t->most = l->tokens > t->most ? l->tokens : t->most;
    t->n_late += seconds > t->run.s.setup.max_step;
    t->n_cut += t->run.s.n_waiting > 0;
}

static void step(struct timed *t)
{
    struct schedule *run = &t->run;
    int number = run->n_steps;
    if (scheduler_busy(&run->s)) {
        schedule_plan(run);
        struct load l = load_of(&run->plan);
        double seconds = run->plan.n_tokens > 0 ? seconds_of(&l) : 0;
        t->finished[number % 2] = fmax(t->finished[(number + 1) % 2], run->now) + seconds;
        judge(t, &l, seconds);
    }
    if (run->n_queued == 2 || !scheduler_busy(&run->s)) {
        run->now = fmax(run->now, t->finished[run->queue[0].step % 2]);
        schedule_accept(run);
    }
}

static void drain(struct timed *t)
{
    while (scheduler_busy(&t->run.s) || t->run.n_queued > 0)
        step(t);
    assert_int_equal(t->run.n_released, t->run.n);
}

static void open(struct timed *t, double max_step)
{
    struct scheduler_setup setup = schedule_setup(8, 128, 200);
    *t = (struct timed){0};
    setup.max_step = max_step;
    setup.prefix_caching = false;
    schedule_open(&t->run, &setup);
}

static struct request *ask(struct timed *t, uint64_t client, int n_prompt, int max_tokens)
{
    struct request_rules rules = schedule_plain;
    struct err e = {0};
    int32_t prompt[SCHEDULE_MAX_LEN];
    uint64_t seed = (uint64_t)t->run.n + 1;
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = random_below(&seed, N_LETTERS);
    rules.max_tokens = max_tokens;
    struct request *r = schedule_make(&t->run, &rules, prompt, n_prompt);
    r->client = client;
    assert_int_equal(scheduler_add(&t->run.s, r, t->run.now, &e), 0);
    return r;
}

/* Runs forty requests; without a bound steps of 128 prompt tokens take 0.14 s. */
static void run_all(struct timed *t, double max_step)
{
    open(t, max_step);
    for (int i = 0; i < SCHEDULE_MAX_REQUESTS; i++) {
        ask(t, 0, 100, 30);
        if (i >= 8)
            step(t);
    }
    drain(t);
    schedule_close(&t->run);
}

static void steps_keep_the_bound(void **state)
{
    static struct timed t;
    (void)state;
    run_all(&t, 0);
    assert_true(t.highest > 0.13 && t.most > 110);
    run_all(&t, 0.08);
    assert_true(t.n_mixed > LEARN && t.highest <= 0.08 && t.n_late == 0);
    assert_true(t.most > 50); /* of 64 to 70 that fit */
    run_all(&t, 0.06);
    assert_true(t.n_mixed > LEARN && t.highest <= 0.06 && t.most > 36);
}

/* Prompts progress even if decoding alone exceeds the bound. */
static void prompts_go_on(void **state)
{
    static struct timed t;
    (void)state;
    run_all(&t, 1e-4);
    assert_true(t.n_mixed > 20 && t.n_cut > 20 && t.most >= LEAST && t.most < LEAST + KV_BLOCK_TOKENS);
}

/* While no sequence decodes, steps are as large as possible. */
static void nobody_waits_for_a_token(void **state)
{
    static struct timed t;
    (void)state;
    open(&t, 0.02);
    ask(&t, 0, 100, 1);
    step(&t);
    assert_int_equal(t.run.plan.n_tokens, 100);
    drain(&t);
    schedule_close(&t.run);
}

/* Clients share the time, too: one client's prompts do not keep another's waiting. */
static void clients_share_the_time(void **state)
{
    static struct timed t;
    (void)state;
    open(&t, 0.06);
    ask(&t, 1, 4, 60);
    for (int i = 0; i < 20; i++)
        ask(&t, 1, 110, 2);
    for (int i = 0; i < 6; i++)
        step(&t);
    const struct request *r = ask(&t, 2, 60, 5);
    int steps = 0;
    for (; r->output.n == 0 && steps < 12; steps++)
        step(&t);
    assert_true(steps < 12);
    assert_true(t.run.s.n_waiting > 5);
    drain(&t);
    schedule_close(&t.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_keep_the_bound),
        cmocka_unit_test(prompts_go_on),
        cmocka_unit_test(nobody_waits_for_a_token),
        cmocka_unit_test(clients_share_the_time),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
