/* tests/unit/test_scheduler_speed.c - the cost of rank 0's part of a step with a device that costs nothing: plan, pack
 * and accept decode steps of 64 sequences, with requests coming and going, one step ahead. Counts processor time, so
 * that other programs on the machine do not matter; the bound is half of the promised speed, for slow machines. */
#include "tests/unit/unit.h"

#include "coordinator/schedule/scheduler.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>

#define N_SEQS   64
#define N_PROMPT 100
#define N_OUTPUT 150
#define N_STEPS  20000
#define BOUND    10000 /* steps per second */

struct client {
    struct scheduler s;
    struct request request[2 * N_SEQS];
    struct request *idle[2 * N_SEQS];
    int n_idle;
    struct request_rules rules;
    int32_t prompt[2 * N_SEQS][N_PROMPT];
    uint64_t n_finished;
};

static void on_release(void *context, struct request *r)
{
    struct client *c = context;
    c->n_finished++;
    c->idle[c->n_idle++] = r;
}

/* Adds requests until as many wait as may run at once. */
static void refill(struct client *c)
{
    struct err e = {0};
    while (c->n_idle > 0) {
        struct request *r = c->idle[--c->n_idle];
        int i = (int)(r - c->request);
        free(r->held[KV_MAIN].block);
        free(r->output.id);
        *r = (struct request){.rules = &c->rules, .index = i, .prompt = {c->prompt[i], N_PROMPT, N_PROMPT}};
        assert_int_equal(scheduler_add(&c->s, r, 0, &e), 0);
    }
}

static void open_client(struct client *c, bool prefix_caching)
{
    struct err e = {0};
    uint64_t seed = 9;
    const struct scheduler_setup setup = {.limits = {.max_seqs = N_SEQS,
                                                     .max_batch_tokens = 2048,
                                                     .max_len = N_PROMPT + N_OUTPUT,
                                                     .max_logit_rows = N_SEQS,
                                                     .n_blocks = N_SEQS * (N_PROMPT + N_OUTPUT) / KV_BLOCK_TOKENS},
                                          .prefix_caching = prefix_caching,
                                          .on_release = on_release,
                                          .context = c};
    c->rules = (struct request_rules){.sampling.repetition_penalty = 1, .max_tokens = N_OUTPUT};
    assert_int_equal(scheduler_open(&c->s, &setup, &e), 0);
    for (int i = 0; i < 2 * N_SEQS; i++) {
        for (int k = 0; k < N_PROMPT; k++)
            c->prompt[i][k] = random_below(&seed, 1000);
        c->idle[c->n_idle++] = &c->request[i];
    }
}

static double steps_per_second(bool prefix_caching)
{
    struct client *c = calloc(1, sizeof *c);
    struct plan plan;
    struct err e = {0};
    static struct sampled sampled[N_SEQS];
    int n_sampled[2];
    uint64_t full = 0;
    open_client(c, prefix_caching);
    assert_int_equal(plan_open(&plan, &c->s.setup.limits, &e), 0);
    for (int i = 0; i < N_SEQS; i++)
        sampled[i].token = i;
    double start = process_cpu_seconds();
    for (uint64_t step = 0; step < N_STEPS; step++) {
        refill(c);
        plan_reset(&plan, step);
        scheduler_plan(&c->s, &plan, 0);
        (void)plan_pack(&plan);
        n_sampled[step % 2] = c->s.flight[step % 2].n;
        full += plan.n_seqs == N_SEQS;
        const struct step_result result = {
            .step = step - 1, .n_sampled = n_sampled[(step + 1) % 2], .sampled = sampled};
        if (step > 0)
            assert_int_equal(scheduler_accept(&c->s, &result, 0, &e), 0);
    }
    double seconds = process_cpu_seconds() - start;
    assert_true(full > N_STEPS * 9 / 10);
    assert_true(c->n_finished > N_STEPS / N_OUTPUT * N_SEQS * 8 / 10);
    for (int i = 0; i < 2 * N_SEQS; i++) {
        free(c->request[i].held[KV_MAIN].block);
        free(c->request[i].output.id);
    }
    plan_close(&plan);
    scheduler_close(&c->s);
    free(c);
    return N_STEPS / seconds;
}

static void is_fast(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        double rate = steps_per_second(caching != 0);
        print_message("# %.0f steps of %d sequences a second, prefix cache %s\n", rate, N_SEQS,
                      caching != 0 ? "on" : "off");
        if (getenv("LOCKSTEP_SANITIZED") == NULL)
            assert_true(rate >= BOUND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_fast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
