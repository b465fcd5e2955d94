/* tests/unit/test_scheduler.c - coordinator/schedule/scheduler.c: thousands of random schedules in which every request
 * must get exactly the tokens that it gets alone, and every plan is checked (tests/support/schedule.h). */
#include "tests/unit/unit.h"

#include "tests/support/schedule.h"
#include "tests/unit/letters.h"

#include <stdlib.h>

static const char *const stop_text[] = {"aa", "b", "c\xc3\xa9", "z", "ab"};
static struct stop_strings *stop[3][3]; /* [first][n] */

static int open_stops(void **state)
{
    struct err e = {0};
    for (int first = 0; first < 3; first++)
        for (int n = 1; n < 3; n++)
            stop[first][n] = stop_open(n, stop_text + first, &e);
    expect_none(&e);
    return schedule_open_letters(state);
}

static int close_stops(void **state)
{
    for (int i = 0; i < 9; i++)
        stop_close(stop[i / 3][i % 3]);
    return schedule_close_letters(state);
}

static void random_rules(struct request_rules *rules, uint64_t *seed)
{
    *rules = (struct request_rules){.max_tokens = 1 + random_below(seed, random_below(seed, 2) == 0 ? 60 : 12),
                                    .skip_special = random_below(seed, 4) != 0};
    struct sampling *p = &rules->sampling;
    p->seed = (uint64_t)random_below(seed, 1000);
    p->repetition_penalty = random_below(seed, 8) == 0 ? 1.5f : 1.0f;
    p->presence_penalty = random_below(seed, 8) == 0 ? 0.5f : 0.0f;
    p->frequency_penalty = random_below(seed, 8) == 0 ? 0.5f : 0.0f;
    rules->keep_stop = random_below(seed, 2) == 0;
    rules->stop = stop[random_below(seed, 3)][random_below(seed, 3)];
    if (random_below(seed, 3) != 0) {
        rules->stop_id[rules->n_stop_ids++] = LETTER_EOS;
        p->eos[p->n_eos++] = LETTER_EOS;
    }
    if (random_below(seed, 3) == 0)
        p->min_tokens = random_below(seed, rules->max_tokens + 1);
}

/* Makes prompts with common beginnings: those of two texts, up to a random position. Some consist of the same few
 * blocks in any order. */
static int random_prompt(int32_t prompt[SCHEDULE_MAX_LEN], uint64_t *seed)
{
    int n = 1 + random_below(seed, random_below(seed, 2) == 0 ? 70 : 20), common = random_below(seed, n + 1);
    uint64_t text = (uint64_t)random_below(seed, 2);
    bool blocks = random_below(seed, 3) == 0;
    for (int i = 0; i < n; i++) {
        if (blocks && i % KV_BLOCK_TOKENS == 0) {
            text = (uint64_t)random_below(seed, 2);
            common = n;
        }
        uint64_t *source = i < common ? &text : seed;
        prompt[i] = random_below(source, N_LETTERS);
    }
    return n;
}

static void random_arrival(struct schedule *run, int n_clients, uint64_t *seed)
{
    struct err e = {0};
    struct request_rules rules;
    int32_t prompt[SCHEDULE_MAX_LEN];
    random_rules(&rules, seed);
    struct request *r = schedule_make(run, &rules, prompt, random_prompt(prompt, seed));
    r->client = random_below(seed, 3) == 0 ? (uint64_t)random_below(seed, n_clients) : 0;
    r->party = (uint64_t)(r->index % 3);
    r->priority = random_below(seed, 4) == 0 ? random_below(seed, 5) - 2 : 0;
    r->deadline = random_below(seed, 6) == 0 ? run->now + 1 + random_below(seed, 60) : 0;
    assert_int_equal(scheduler_add(&run->s, r, run->now, &e), 0);
}

static void random_cancel(struct schedule *run, uint64_t *seed)
{
    struct request *r = run->request[random_below(seed, run->n)];
    if (r == NULL)
        return;
    const struct held_blocks *all = &r->held[KV_MAIN];
    int before = run->s.blocks[KV_MAIN].n_free, held = r->finish == FINISH_NONE ? all->end - all->begin : 0;
    int index = r->index;
    bool in_flight = r->n_in_flight > 0;
    scheduler_cancel(&run->s, r, FINISH_CANCELLED, run->now);
    assert_true(run->s.blocks[KV_MAIN].n_free <= before + held);
    assert_true(in_flight == (run->request[index] != NULL)); /* released at once, or with its last result */
    schedule_check_memory(run);
}

/* The sources of drafts. */
enum drafts { NO_DRAFTS, RANDOM_DRAFTS, MODEL_DRAFTS };

struct sums {
    uint64_t preemptions, hits, queries, drafts, drafted, accepted[DRAFTS_MAX];
    int ended[FINISH_REASONS];
};

/* The visibility of earlier tokens in the layers of a schedule. */
enum sight { ALL_SEE_ALL, SOME_ARE_WINDOWED, ALL_ARE_WINDOWED, SIGHTS };

static void random_windows(struct limits *l, enum sight sight, uint64_t *seed)
{
    if (sight == ALL_SEE_ALL)
        return;
    l->window = 2 + random_below(seed, random_below(seed, 2) == 0 ? 20 : SCHEDULE_MAX_LEN);
    int n = limits_window_blocks(l->window) + random_below(seed, random_below(seed, 4) != 0 ? 4 : 40);
    *(sight == ALL_ARE_WINDOWED ? &l->n_blocks : &l->n_window_blocks) = n;
}

static void one_schedule(uint64_t *seed, int depth, bool prefix_caching, enum drafts drafts, enum sight sight,
                         struct sums *sums)
{
    struct scheduler_setup setup = {.prefix_caching = prefix_caching, .foresees = random_below(seed, 4) == 0};
    struct limits *l = &setup.limits;
    l->max_seqs = 1 + random_below(seed, 12);
    l->max_batch_tokens = l->max_seqs + random_below(seed, random_below(seed, 2) == 0 ? 10 : 90);
    l->max_len = SCHEDULE_MAX_LEN;
    l->max_drafts = drafts != NO_DRAFTS ? 1 + random_below(seed, 40) : 0;
    l->max_logit_rows = l->max_seqs + l->max_drafts;
    if (drafts == RANDOM_DRAFTS)
        setup.drafts.propose = schedule_propose;
    if (drafts == MODEL_DRAFTS) {
        l->draft_len = 20 + random_below(seed, SCHEDULE_MAX_LEN - 19);
        setup.guesses.always = random_below(seed, 3) != 0;
        l->draft_ranks = random_below(seed, 3) == 0;
    }
    bool most_drafts = random_below(seed, 4) == 0; /* the last places are reached, too */
    setup.guesses.most = drafts == NO_DRAFTS ? 0 : most_drafts ? DRAFTS_MAX : 1 + random_below(seed, DRAFTS_MAX);
    l->n_blocks = (SCHEDULE_MAX_LEN + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS +
                  random_below(seed, random_below(seed, 4) != 0 ? 4 : 40);
    random_windows(l, sight, seed);
    struct schedule run;
    schedule_open(&run, &setup);
    run.draft_seed = *seed;
    int n = 1 + random_below(seed, SCHEDULE_MAX_REQUESTS), often = 1 + random_below(seed, 6);
    int n_clients = random_below(seed, 2) == 0 ? 1 : 2 + random_below(seed, 4);
    while (run.n < n) {
        if (random_below(seed, often) == 0)
            random_arrival(&run, n_clients, seed);
        if (run.n > 0 && random_below(seed, 40) == 0)
            random_cancel(&run, seed);
        schedule_step(&run, depth);
    }
    schedule_drain(&run, depth);
    struct scheduler_stats stats = scheduler_stats(&run.s);
    assert_int_equal(stats.n_running + stats.n_waiting + stats.n_blocks_used + stats.n_window_blocks_used, 0);
    sums->preemptions += stats.n_preemptions;
    sums->hits += stats.prefix_hits;
    sums->queries += stats.prefix_queries;
    sums->drafts += stats.n_drafts;
    sums->drafted += stats.n_draft_tokens;
    for (int i = 0; i < DRAFTS_MAX; i++)
        sums->accepted[i] += stats.n_accepted[i];
    for (int i = 0; i < FINISH_REASONS; i++) {
        sums->ended[i] += run.n_ended[i];
        assert_int_equal(stats.n_finished[i], run.n_ended[i]);
    }
    schedule_close(&run);
}

static void all_schedules(uint64_t seed, enum drafts drafts, enum sight sight, struct sums sums[2])
{
    int n = getenv("LOCKSTEP_SANITIZED") != NULL ? 400 : 2500;
    for (int trial = 0; trial < n; trial++)
        one_schedule(&seed, trial % 2, trial / 2 % 2 != 0, drafts, sight, &sums[trial / 2 % 2]);
    for (int i = 0; i < 2; i++) {
        print_message("# prefix cache %s: %llu preemptions, %llu of %llu tokens found, %d cancelled, %d timed out\n",
                      i == 0 ? "off" : "on", (unsigned long long)sums[i].preemptions, (unsigned long long)sums[i].hits,
                      (unsigned long long)sums[i].queries, sums[i].ended[FINISH_CANCELLED],
                      sums[i].ended[FINISH_TIMEOUT]);
        assert_true(sums[i].preemptions > (uint64_t)n / 4); /* every kind of event occurred */
        assert_true(sums[i].ended[FINISH_STOP] > n / 2 && sums[i].ended[FINISH_LENGTH] > n / 2);
        assert_true(sums[i].ended[FINISH_CANCELLED] > n / 10 && sums[i].ended[FINISH_TIMEOUT] > n / 10);
    }
    assert_int_equal(sums[0].queries, 0);
    assert_int_equal(sums[0].hits, 0);
    assert_true(sums[1].hits > sums[1].queries / 20);
}

static void random_schedules(void **state)
{
    (void)state;
    struct sums sums[2] = {0};
    all_schedules(11, NO_DRAFTS, ALL_SEE_ALL, sums);
    assert_int_equal(sums[0].drafts + sums[1].drafts, 0);
}

/* There were many drafts, often of several tokens. */
static void check_drafted(const struct sums *sum)
{
    print_message("# %llu times %llu tokens drafted, right at place 1: %llu, 15: %llu\n",
                  (unsigned long long)sum->drafts, (unsigned long long)sum->drafted,
                  (unsigned long long)sum->accepted[0], (unsigned long long)sum->accepted[DRAFTS_MAX - 1]);
    assert_true(sum->drafts > 1000 && sum->drafted > sum->drafts);
}

/* Guesses of every length, correct up to every position. */
static void random_schedules_with_drafts(void **state)
{
    (void)state;
    struct sums sums[2] = {0};
    all_schedules(12, RANDOM_DRAFTS, ALL_SEE_ALL, sums);
    for (int k = 0; k < 2; k++) {
        check_drafted(&sums[k]);
        for (int i = 0; i < DRAFTS_MAX; i++)
            assert_true(sums[k].accepted[i] > 0 && (i == 0 || sums[k].accepted[i] <= sums[k].accepted[i - 1]));
    }
}

/* The device compares the keys that windowed layers see. A draft model keeps everything. */
static void random_schedules_with_windows(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct sums sums[2] = {0};
        enum sight sight = i / 3 == 0 ? SOME_ARE_WINDOWED : ALL_ARE_WINDOWED;
        all_schedules(14 + (uint64_t)i, (enum drafts)(i % 3), sight, sums);
        assert_true((sums[0].drafts + sums[1].drafts > 1000) == (i % 3 != NO_DRAFTS));
    }
}

/* The same model drafts: with preemption, shared prefixes and ends of all kinds its drafts are correct wherever they
 * can be (tests/support/schedule.c). */
static void random_schedules_with_a_draft_model(void **state)
{
    (void)state;
    struct sums sums[2] = {0};
    all_schedules(13, MODEL_DRAFTS, ALL_SEE_ALL, sums);
    for (int k = 0; k < 2; k++) {
        check_drafted(&sums[k]);
        assert_true(sums[k].accepted[0] > sums[k].drafts / 2 && sums[k].accepted[0] < sums[k].drafts);
        assert_true(sums[k].accepted[DRAFTS_MAX - 1] > 0);
    }
}

/* A device that always has a step in the queue never shows the scheduler a sequence that could be drafted: the pause
 * must nevertheless end. */
static void a_resting_draft_model_is_tried_again(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(2, 32, 40);
    setup.limits.max_drafts = 8;
    setup.limits.max_logit_rows = 10;
    setup.limits.draft_len = SCHEDULE_MAX_LEN;
    setup.guesses.most = 3;
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct schedule run;
        struct request_rules rules = schedule_plain;
        rules.max_tokens = 60;
        schedule_open(&run, &setup);
        costs_add(&run.s.costs, 1, 1); /* a step of the paper device takes no time */
        run.s.drafter.payoff.pause = run.s.drafter.payoff.rest = 16;
        (void)schedule_add(&run, &rules, 5, 1);
        for (int i = 0; i < 50 && scheduler_stats(&run.s).n_drafts == 0; i++)
            schedule_step(&run, depth);
        assert_true(scheduler_stats(&run.s).n_drafts > 0);
        schedule_drain(&run, depth);
        schedule_close(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules),
        cmocka_unit_test(random_schedules_with_drafts),
        cmocka_unit_test(a_resting_draft_model_is_tried_again),
        cmocka_unit_test(random_schedules_with_windows),
        cmocka_unit_test(random_schedules_with_a_draft_model),
    };
    return cmocka_run_group_tests(tests, open_stops, close_stops);
}
