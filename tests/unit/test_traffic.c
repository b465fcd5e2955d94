/* tests/unit/test_traffic.c - commands/bench/traffic.c: every request of it is served completely, whatever the limits
 * and however late the results come. */
#include "tests/unit/unit.h"

#include "commands/bench/traffic.h"
#include "tests/support/files.h"

#include <stdlib.h>

#define VOCAB     50
#define MAX_SEQS  8
#define MAX_STEPS 10000
#define SAMPLED   1

/* A device's view, with one step in flight, or none. */
struct device {
    struct plan plan;
    struct sampled sampled[2][MAX_SEQS];
    struct step_result result[2];
    int fed[MAX_SEQS]; /* tokens fed of the sequence in each slot */
    bool finds;        /* with a prefix cache */
    int64_t n_started, n_fed, n_sampled, n_steps;
    int most;
};

static void check_token(const struct plan *p, int t, int pos, int n_input)
{
    if (pos < n_input)
        assert_true(p->token[t] >= 0 && p->token[t] < VOCAB);
    else /* the sampled token: on the device, or again after a preemption */
        assert_true(p->token[t] == -1 || p->token[t] == SAMPLED);
}

static void compute(struct device *d, const struct limits *l, int n_input)
{
    struct plan *p = &d->plan;
    struct step_result *r = &d->result[p->step % 2];
    int t = 0;
    *r = (struct step_result){.step = p->step, .sampled = d->sampled[p->step % 2]};
    assert_true(p->n_tokens <= l->max_batch_tokens && p->n_seqs <= l->max_seqs);
    for (int i = 0; i < p->n_starts; i++) {
        d->fed[p->start[i].slot] = -1;
        assert_true(p->start[i].sampling.temperature == 1 && p->start[i].sampling.prompt_len == n_input);
    }
    for (int i = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        if (d->fed[s->slot] < 0) /* begins, after its cached prefix */
            d->fed[s->slot] = d->finds ? s->pos : 0;
        assert_int_equal(s->pos, d->fed[s->slot]);
        for (int j = 0; j < s->n_tokens; j++)
            check_token(p, t++, s->pos + j, n_input);
        d->fed[s->slot] += s->n_tokens;
        if (s->sample)
            d->sampled[p->step % 2][r->n_sampled++] = (struct sampled){.token = SAMPLED, .slot = s->slot};
    }
    assert_int_equal(t, p->n_tokens);
    d->n_started += p->n_starts;
    d->n_fed += p->n_tokens;
    d->n_sampled += r->n_sampled;
    d->n_steps += p->n_tokens > 0;
    d->most = p->n_seqs > d->most ? p->n_seqs : d->most;
}

/* flights: 1 or 2 */
static void serve(struct traffic *t, struct device *d, const struct limits *l, int n_input, int flights)
{
    struct err e = {0};
    uint64_t step = 0, taken = 0;
    assert_int_equal(traffic_queue(t, 0, &e), 0);
    while (traffic_busy(t) && step < MAX_STEPS) {
        plan_reset(&d->plan, step++);
        traffic_plan(t, &d->plan, (double)step);
        compute(d, l, n_input);
        if (step - taken == (uint64_t)flights)
            assert_int_equal(traffic_accept(t, &d->result[taken++ % 2], (double)step, &e), 0);
    }
    for (; taken < step; taken++)
        assert_int_equal(traffic_accept(t, &d->result[taken % 2], (double)step, &e), 0);
    expect_none(&e);
    assert_false(traffic_busy(t));
}

static void check_rounds(int n, int in, int out, struct limits l, int flights, int64_t n_steps)
{
    struct traffic t = {0};
    struct err e = {0};
    assert_int_equal(traffic_open(&t, n, in, out, &l, VOCAB, &e), 0);
    for (int round = 0; round < 2; round++) { /* again: nothing is left of the first round */
        struct device d = {0};
        assert_int_equal(plan_open(&d.plan, &l, &e), 0);
        serve(&t, &d, &l, in, flights);
        assert_int_equal(t.scheduler.stats.n_preemptions, 0); /* all answers are as long as expected */
        assert_int_equal(d.n_started, n);
        assert_int_equal(d.n_sampled, (int64_t)n * out);
        assert_int_equal(d.n_fed, (int64_t)n * (in + out - 1));
        assert_true(d.most >= 1);
        if (n_steps > 0)
            assert_int_equal(d.n_steps, n_steps);
        for (int i = 0; i < n; i++) {
            assert_int_equal(t.request[i].finish, FINISH_LENGTH);
            assert_int_equal(t.request[i].output.n, out);
            assert_int_equal(t.request[i].n_in_flight, 0);
        }
        plan_close(&d.plan);
    }
    traffic_close(&t);
}

/* One sequence of about 2,000 steps: a draft is accepted with probability a if the one before it was, so a step gives
 * (1 - a^(k+1)) / (1 - a) tokens. */
static void drafts_are_played(void **state)
{
    (void)state;
    static const struct {
        double acceptance, tokens;
    } known[] = {{0, 1}, {0.75, 3.0508}, {1, 5}};
    for (int i = 0; i < 3; i++) {
        enum { OUT = 5001 };
        const struct limits l = {.max_seqs = 1,
                                 .max_batch_tokens = 64,
                                 .max_len = OUT + 16,
                                 .max_logit_rows = 5,
                                 .n_blocks = OUT / 16 + 2,
                                 .max_drafts = 4};
        static struct sampled sampled[2][5];
        struct step_result result[2];
        struct plan plan;
        struct traffic t = {.drafts = {.most = 4, .acceptance = known[i].acceptance}};
        struct err e = {0};
        assert_int_equal(plan_open(&plan, &l, &e), 0);
        assert_int_equal(traffic_open(&t, 1, 8, OUT, &l, VOCAB, &e), 0);
        assert_int_equal(traffic_queue(&t, 0, &e), 0);
        for (uint64_t step = 0; traffic_busy(&t); step++) { /* a result comes one step late */
            plan_reset(&plan, step);
            traffic_plan(&t, &plan, (double)step);
            result[step % 2] = (struct step_result){.step = step, .sampled = sampled[step % 2]};
            for (int k = 0; k < plan.n_seqs; k++)
                result[step % 2].n_sampled += plan.seq[k].sample;
            if (step > 0)
                assert_int_equal(traffic_accept(&t, &result[(step + 1) % 2], (double)step, &e), 0);
        }
        const struct scheduler_stats *s = &t.scheduler.stats;
        assert_int_equal(t.request[0].output.n, OUT);
        double tokens = (double)s->n_output_tokens / (double)s->n_drafts;
        assert_true(tokens > known[i].tokens - 0.1 && tokens < known[i].tokens + 0.1);
        plan_close(&plan);
        traffic_close(&t);
    }
}

static void all_are_served(void **state)
{
    (void)state;
    for (int flights = 1; flights <= 2; flights++) {
        check_rounds(
            1, 1, 1,
            (struct limits){.max_seqs = 1, .max_batch_tokens = 1, .max_len = 2, .max_logit_rows = 1, .n_blocks = 1},
            flights, 1);
        check_rounds(
            1, 7, 5,
            (struct limits){.max_seqs = 1, .max_batch_tokens = 4, .max_len = 12, .max_logit_rows = 1, .n_blocks = 1},
            flights, 2 + 4);
        check_rounds(
            9, 10, 6,
            (struct limits){.max_seqs = 4, .max_batch_tokens = 16, .max_len = 16, .max_logit_rows = 4, .n_blocks = 4},
            flights, 0);
        check_rounds(
            20, 33, 17,
            (struct limits){
                .max_seqs = MAX_SEQS, .max_batch_tokens = 8, .max_len = 50, .max_logit_rows = MAX_SEQS, .n_blocks = 32},
            flights, 0);
        check_rounds(
            20, 33, 17,
            (struct limits){
                .max_seqs = MAX_SEQS, .max_batch_tokens = 64, .max_len = 50, .max_logit_rows = MAX_SEQS, .n_blocks = 9},
            flights, 0); /* KV for two at once */
        check_rounds(
            5, 3, 1,
            (struct limits){.max_seqs = 2, .max_batch_tokens = 2, .max_len = 4, .max_logit_rows = 2, .n_blocks = 2},
            flights, 0);
    }
    /* Two at once, results at once: 3 pairs of 1 prompt step and 3 decode steps. */
    check_rounds(
        6, 4, 4,
        (struct limits){.max_seqs = 2, .max_batch_tokens = 8, .max_len = 8, .max_logit_rows = 2, .n_blocks = 2}, 1,
        3 * 4);
}

static void prompts_differ(void **state)
{
    (void)state;
    struct traffic t = {0};
    struct err e = {0};
    const struct limits l = {.max_seqs = 2, .max_batch_tokens = 64, .max_len = 64, .max_logit_rows = 2, .n_blocks = 8};
    assert_int_equal(traffic_open(&t, 5, 20, 2, &l, VOCAB, &e), 0);
    assert_int_equal(traffic_queue(&t, 0, &e), 0);
    for (int i = 1; i < 5; i++)
        assert_memory_not_equal(t.request[0].prompt.id, t.request[i].prompt.id, 20 * sizeof(int32_t));
    traffic_close(&t); /* with all of them waiting */
}

/* 4 requests of 40 + 3 tokens that share 33, with a step of 40 tokens per second: the first feeds 40 tokens, the others
 * find two blocks and feed 8. */
static void a_prefix_is_shared(void **state)
{
    (void)state;
    const struct limits l = {.max_seqs = 4, .max_batch_tokens = 40, .max_len = 64, .max_logit_rows = 4, .n_blocks = 16};
    struct traffic t = {.n_shared = 33};
    struct device d = {.finds = true};
    struct err e = {0};
    static int32_t first[40];
    assert_int_equal(traffic_open(&t, 4, 40, 3, &l, VOCAB, &e), 0);
    assert_int_equal(plan_open(&d.plan, &l, &e), 0);
    for (int round = 1; round <= 3; round++) {
        traffic_renew(&t);
        for (size_t i = 1; i < 4; i++) {
            assert_memory_equal(t.id, t.id + i * t.stride, 33 * sizeof(int32_t));
            assert_memory_not_equal(t.id + 33, t.id + i * t.stride + 33, 7 * sizeof(int32_t));
        }
        assert_memory_not_equal(t.id, first, sizeof first);
        memcpy(first, t.id, sizeof first);
        d.n_fed = 0;
        serve(&t, &d, &l, 40, 1);
        assert_int_equal(d.n_fed, 40 + 3 * 8 + 4 * 2);
        assert_true(traffic_cached(&t) == 96.0 / 160);
    }
    plan_close(&d.plan);
    traffic_close(&t);
}

/* Two of four requests at once, 3 tokens each, a step per second and results at once: two first tokens a second after
 * all were queued, two after 4 seconds. */
static void waits_are_counted(void **state)
{
    (void)state;
    const struct limits l = {.max_seqs = 2, .max_batch_tokens = 16, .max_len = 8, .max_logit_rows = 2, .n_blocks = 2};
    struct traffic t = {0};
    struct device d = {0};
    struct err e = {0};
    assert_int_equal(traffic_open(&t, 4, 5, 3, &l, VOCAB, &e), 0);
    assert_int_equal(plan_open(&d.plan, &l, &e), 0);
    serve(&t, &d, &l, 5, 1);
    const struct waits *w = &t.waits;
    assert_int_equal(w->first_token.n, 4);
    assert_true(w->first_token.sum == 1 + 1 + 4 + 4 && w->first_token.highest == 4);
    assert_int_equal(w->between_tokens.n, 4 * 2);
    assert_true(w->between_tokens.sum == 8 && w->between_tokens.highest == 1);
    plan_close(&d.plan);
    traffic_close(&t);
}

static void refuses_what_never_runs(void **state)
{
    (void)state;
    struct traffic t = {0};
    struct err e = {0};
    const struct limits l = {.max_seqs = 2, .max_batch_tokens = 64, .max_len = 64, .max_logit_rows = 2, .n_blocks = 2};
    assert_int_equal(traffic_open(&t, 3, 30, 3, &l, VOCAB, &e), -1);
    expect_text(&e, ERR_MEMORY, "a request of 30 + 3 tokens: the KV cache holds 32");
    traffic_close(&t);
}

/* Returns the mask's first token. */
static int32_t first_token(const uint32_t *mask)
{
    int32_t word = 0;
    while (mask[word] == 0)
        word++;
    return 32 * word + __builtin_ctz(mask[word]);
}

/* Simulates a device with one step in flight, whose masks may come late. */
static void compute_masked(struct traffic *t, struct plan *p, struct step_result *r, struct sampled *sampled)
{
    size_t words = (size_t)p->limits.mask_words;
    traffic_masks(t, p);
    const uint32_t *here = p->mask, *late = plan_late_masks(p);
    *r = (struct step_result){.step = p->step, .sampled = sampled};
    for (int i = 0; i < p->n_seqs; i++) {
        const uint32_t **mask = p->seq[i].masked == MASK_LATE ? &late : &here;
        for (int k = 0; k < p->seq[i].sample; k++, *mask += words)
            sampled[r->n_sampled++] = (struct sampled){.token = first_token(*mask), .slot = p->seq[i].slot};
    }
}

/* Serves four rounds of 5 answers in the schema's form, n_output tokens each. Returns how often an answer had ended
 * while a step still sampled for it. */
static uint64_t serve_form(const char *schema, int n_output)
{
    char dir[256], path[300];
    struct err e = {0};
    struct traffic t = {0};
    struct plan plan;
    struct sampled sampled[2][3];
    struct step_result result[2];
    uint64_t step = 0, n_void = 0;
    files_make_dir(dir);
    files_write(dir, "schema.json", schema, strlen(schema));
    (void)snprintf(path, sizeof path, "%s/schema.json", dir);
    assert_int_equal(traffic_speak(&t, "demo/lockstep-stories", path, 2048, &e), 0);
    const struct limits l = {.max_seqs = 3,
                             .max_batch_tokens = 64,
                             .max_len = 64,
                             .max_logit_rows = 3,
                             .n_blocks = 20,
                             .mask_words = 2048 / 32};
    assert_int_equal(traffic_open(&t, 5, 4, n_output, &l, 2048, &e), 0);
    assert_int_equal(plan_open(&plan, &l, &e), 0);
    for (int round = 0; round < 4; round++) {
        assert_int_equal(traffic_queue(&t, 0, &e), 0);
        for (; traffic_busy(&t); step++) {
            plan_reset(&plan, step);
            traffic_plan(&t, &plan, 0);
            if (step > 0)
                assert_int_equal(traffic_accept(&t, &result[(step - 1) % 2], 0, &e), 0);
            compute_masked(&t, &plan, &result[step % 2], sampled[step % 2]);
            for (int i = 0; i < 5; i++)
                n_void += t.request[i].finish != FINISH_NONE && t.request[i].n_in_flight > 0;
        }
        for (int i = 0; i < 5; i++)
            assert_true(t.request[i].output.n == (size_t)n_output && t.request[i].n_in_flight == 0);
    }
    assert_int_equal(t.waits.first_token.n, 4 * 5);
    assert_int_equal(t.waits.between_tokens.n, 0); /* the clock does not advance */
    expect_none(&e);
    plan_close(&plan);
    traffic_close(&t);
    files_remove_dir(dir);
    return n_void;
}

/* Answers end with forced text while a step still samples in its place: the run is over only after that step. */
static void steps_under_way_are_awaited(void **state)
{
    (void)state;
    assert_true(serve_form("{\"type\":\"array\",\"minItems\":50,\"items\":{\"const\":\"a little dragon\"}}", 23) > 0);
}

/* Forced tokens come together with the first one. */
static void first_tokens_of_forced_text(void **state)
{
    (void)state;
    (void)serve_form("{\"const\":\"a little dragon who lived in the deep and dark forest behind the hills\"}", 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_served),
        cmocka_unit_test(drafts_are_played),
        cmocka_unit_test(prompts_differ),
        cmocka_unit_test(a_prefix_is_shared),
        cmocka_unit_test(waits_are_counted),
        cmocka_unit_test(refuses_what_never_runs),
        cmocka_unit_test(steps_under_way_are_awaited),
        cmocka_unit_test(first_tokens_of_forced_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
