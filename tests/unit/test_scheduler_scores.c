/* tests/unit/test_scheduler_scores.c - coordinator/schedule/scheduler.c, scored prompts: every token of them once, with
 * its own score, in plans that a rank accepts; among unscored sequences, with preemption, shared prefixes and
 * cancelling. The device is simulated: a token's score is its position. */
#include "tests/unit/unit.h"

#include "coordinator/schedule/scheduler.h"

#include <stdlib.h>

#define VOCAB      40
#define N_REQUESTS 12
#define MAX_LEN    90

/* The parameters of a run. */
struct shape {
    struct limits limits;
    bool prefix_caching;
    int n_flights;  /* plans in flight at once */
    int cancel_one; /* one in this many steps cancels a request; 0: none */
};

/* The limits of so many sequences; rows: of logits to score prompts with. */
#define LIMITS(seqs, tokens, rows, blocks)                                                                       \
    {                                                                                                            \
        .max_seqs = (seqs), .max_batch_tokens = (tokens), .max_len = MAX_LEN, .max_logit_rows = (seqs) + (rows), \
        .n_blocks = (blocks)                                                                                     \
    }

struct run {
    struct shape shape;
    struct scheduler scheduler;
    struct request_rules rules[N_REQUESTS];
    struct request request[N_REQUESTS];
    struct plan plan, unpacked;
    bool released[N_REQUESTS];
    int n_released, n_scored;
    uint64_t seed;
    struct outcome { /* of a plan in flight */
        struct sampled *sampled, *scored;
        struct step_result result;
    } flight[SCHEDULER_FLIGHTS];
};

static int below(struct run *r, int n)
{
    r->seed ^= r->seed << 13;
    r->seed ^= r->seed >> 7;
    r->seed ^= r->seed << 17;
    return (int)(r->seed % (uint64_t)n);
}

static void on_progress(void *context, struct request *q)
{
    (void)context;
    if (q->rules->want_prompt_logprobs && q->output.n > 0)
        assert_int_equal(q->n_scored, (int)q->prompt.n - 1); /* complete before the first token */
}

/* A request that finished has every score, each of its own token. */
static void on_release(void *context, struct request *q)
{
    struct run *r = context;
    assert_false(r->released[q->index]);
    r->released[q->index] = true;
    r->n_released++;
    assert_int_equal(q->n_in_flight, 0);
    assert_int_equal(q->n_score_flights, 0);
    if (!q->rules->want_prompt_logprobs) {
        assert_null(q->prompt_logprobs);
        assert_int_equal(q->n_scored, 0);
        return;
    }
    if (q->finish != FINISH_CANCELLED)
        assert_int_equal(q->n_scored, (int)q->prompt.n - 1);
    for (int i = 0; i < q->n_scored; i++) {
        assert_int_equal(q->prompt_logprobs[i].token, q->prompt.id[i + 1]);
        assert_true(q->prompt_logprobs[i].logprob == (float)(i + 1));
    }
}

static void open_run(struct run *r, const struct shape *shape, uint64_t seed)
{
    struct err e = {0};
    *r = (struct run){.shape = *shape, .seed = seed};
    const struct scheduler_setup setup = {.limits = shape->limits,
                                          .prefix_caching = shape->prefix_caching,
                                          .on_progress = on_progress,
                                          .on_release = on_release,
                                          .context = r};
    assert_int_equal(scheduler_open(&r->scheduler, &setup, &e), 0);
    assert_int_equal(plan_open(&r->plan, &shape->limits, &e), 0);
    assert_int_equal(plan_open(&r->unpacked, &shape->limits, &e), 0);
    for (int i = 0; i < N_REQUESTS; i++) {
        struct request *q = &r->request[i];
        int n = i == 0 ? 1 : 1 + below(r, 60), same = below(r, 3) == 0 ? 0 : 40; /* beginnings that are often equal */
        r->rules[i] = (struct request_rules){.max_tokens = 1 + below(r, MAX_LEN - 61),
                                             .sampling = {.top_p = 1, .repetition_penalty = 1},
                                             .want_prompt_logprobs = i == 0 || below(r, 3) > 0};
        *q = (struct request){.rules = &r->rules[i],
                              .index = i,
                              .client = seed % 2 == 0 ? (uint64_t)below(r, 3) : 0,
                              .priority = below(r, 3)};
        q->prompt.id = calloc((size_t)n, sizeof *q->prompt.id);
        q->prompt.n = q->prompt.capacity = (size_t)n;
        for (int k = 0; k < n; k++)
            q->prompt.id[k] = k < same ? k * 7 % VOCAB : below(r, VOCAB);
        assert_int_equal(scheduler_add(&r->scheduler, q, 1, &e), 0);
    }
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++) {
        r->flight[i].sampled = calloc((size_t)shape->limits.max_logit_rows, sizeof *r->flight[i].sampled);
        r->flight[i].scored = calloc((size_t)shape->limits.max_logit_rows, sizeof *r->flight[i].scored);
    }
}

static void close_run(struct run *r)
{
    for (int i = 0; i < N_REQUESTS; i++)
        request_close(&r->request[i]);
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++) {
        free(r->flight[i].sampled);
        free(r->flight[i].scored);
    }
    plan_close(&r->plan);
    plan_close(&r->unpacked);
    scheduler_close(&r->scheduler);
}

/* Computes a device's results for the plan that arrives there, with the ranks' checks. */
static void execute(struct run *r, struct outcome *o)
{
    struct err e = {0};
    size_t bytes = plan_pack(&r->plan);
    memcpy(r->unpacked.message, r->plan.message, bytes);
    if (plan_unpack(&r->unpacked, bytes, VOCAB, &e) != 0)
        fail_msg("%s", e.text);
    const struct plan *p = &r->unpacked;
    o->result = (struct step_result){.step = p->step, .sampled = o->sampled, .scored = o->scored};
    for (int i = 0; i < p->n_seqs; i++)
        if (p->seq[i].sample)
            o->sampled[o->result.n_sampled++] = (struct sampled){.token = 3, .slot = p->seq[i].slot};
    for (int k = 0, i = 0, first = 0; k < p->n_scores; k++) {
        for (; i < p->score[k].seq; i++)
            first += p->seq[i].n_tokens;
        const struct plan_seq *s = &p->seq[i];
        for (int j = s->n_tokens - s->n_logits, n = 0; n < p->score[k].n_scored; j++, n++)
            o->scored[o->result.n_scored++] = (struct sampled){
                .token = j + 1 < s->n_tokens ? p->token[first + j + 1] : p->score[k].next,
                .slot = s->slot,
                .logprob = (float)(s->pos + j + 1),
            };
    }
    r->n_scored += o->result.n_scored;
}

static void run_schedule(const struct shape *shape, uint64_t seed, struct scheduler_stats *stats)
{
    struct run r;
    struct err e = {0};
    uint64_t planned = 0, taken = 0;
    int wanted = 0;
    open_run(&r, shape, seed);
    for (int i = 0; i < N_REQUESTS; i++)
        wanted += r.rules[i].want_prompt_logprobs ? (int)r.request[i].prompt.n - 1 : 0;
    while (scheduler_busy(&r.scheduler)) {
        assert_true(planned < 20000);
        if (shape->cancel_one > 0 && below(&r, shape->cancel_one) == 0)
            scheduler_cancel(&r.scheduler, &r.request[below(&r, N_REQUESTS)], FINISH_CANCELLED, 2);
        plan_reset(&r.plan, planned);
        scheduler_plan(&r.scheduler, &r.plan, 2);
        execute(&r, &r.flight[planned++ % SCHEDULER_FLIGHTS]);
        for (; planned - taken >= (scheduler_busy(&r.scheduler) ? (uint64_t)shape->n_flights : 1); taken++)
            if (scheduler_accept(&r.scheduler, &r.flight[taken % SCHEDULER_FLIGHTS].result, 3, &e) != 0)
                fail_msg("%s", e.text);
    }
    assert_int_equal(r.n_released, N_REQUESTS);
    if (shape->cancel_one == 0)
        assert_int_equal(r.n_scored, wanted); /* each once, also after a preemption */
    *stats = scheduler_stats(&r.scheduler);
    assert_int_equal(stats->n_blocks_used, 0);
    close_run(&r);
}

static void every_token_is_scored_once(void **unused)
{
    (void)unused;
    static const struct shape shapes[] = {
        {LIMITS(4, 64, 64, 40), false, 1, 0}, {LIMITS(4, 16, 16, 40), true, 2, 0},
        {LIMITS(4, 64, 5, 40), true, 2, 0}, /* fewer rows than tokens */
        {LIMITS(3, 7, 1, 20), true, 1, 0},  /* a token per step */
        {LIMITS(6, 32, 20, 9), true, 2, 0}, /* blocks for few sequences: preemption */
        {LIMITS(6, 32, 20, 9), true, 2, 9},   {LIMITS(1, 32, 9, 6), true, 2, 20},
    };
    uint64_t n_preemptions = 0, n_hits = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint64_t seed = 1; seed <= 60; seed++) {
            struct scheduler_stats stats;
            run_schedule(&shapes[i], seed * 977 + i, &stats);
            n_preemptions += stats.n_preemptions;
            n_hits += stats.prefix_hits;
        }
    assert_true(n_preemptions > 20 && n_hits > 1000); /* preemption and cache hits did occur */
}

/* A second request with the same prompt finds nothing in the cache until it has its scores; an unscored one finds
 * everything. */
static void the_prefix_cache_hides_no_token(void **unused)
{
    (void)unused;
    const struct shape shape = {LIMITS(4, 64, 64, 40), true, 1, 0};
    struct run r;
    struct err e = {0};
    open_run(&r, &shape, 5);
    for (int i = 0; i < N_REQUESTS; i++)
        scheduler_cancel(&r.scheduler, &r.request[i], FINISH_CANCELLED, 1);
    for (int round = 0; round < 3; round++) {
        const struct request_rules rules = {
            .max_tokens = 2, .sampling = {.top_p = 1, .repetition_penalty = 1}, .want_prompt_logprobs = round < 2};
        struct request q = {.rules = &rules, .index = round};
        r.released[round] = false;
        q.prompt.id = calloc(50, sizeof *q.prompt.id);
        q.prompt.n = q.prompt.capacity = 50;
        for (int k = 0; k < 50; k++)
            q.prompt.id[k] = k % VOCAB;
        assert_int_equal(scheduler_add(&r.scheduler, &q, 1, &e), 0);
        for (uint64_t step = 0; !r.released[round]; step++) {
            plan_reset(&r.plan, step);
            scheduler_plan(&r.scheduler, &r.plan, 2);
            execute(&r, &r.flight[step % 2]);
            assert_int_equal(scheduler_accept(&r.scheduler, &r.flight[step % 2].result, 3, &e), 0);
        }
        assert_int_equal(q.n_cached, round < 2 ? 0 : 48);
        assert_int_equal(q.n_scored, round < 2 ? 49 : 0);
        request_close(&q);
    }
    close_run(&r);
}

/* Without rows for scores the request is refused, and delays no other. */
static void no_rows_to_score_with(void **unused)
{
    (void)unused;
    const struct shape shape = {LIMITS(4, 64, 0, 40), true, 1, 0};
    const struct request_rules rules = {.max_tokens = 2, .want_prompt_logprobs = true};
    struct scheduler s;
    struct err e = {0};
    struct request q = {.rules = &rules};
    const struct scheduler_setup setup = {.limits = shape.limits};
    int32_t id[2] = {1, 2};
    q.prompt = (struct token_list){.id = id, .n = 2};
    assert_int_equal(scheduler_open(&s, &setup, &e), 0);
    assert_int_equal(scheduler_add(&s, &q, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "4 rows of logits for 4 sequences");
    assert_false(scheduler_busy(&s));
    scheduler_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_is_scored_once),
        cmocka_unit_test(the_prefix_cache_hides_no_token),
        cmocka_unit_test(no_rows_to_score_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
