/* tests/unit/test_choices.c - coordinator/schedule/choices.c and beam.c on a paper device: n, best_of and beams, alone
 * and among others, with so few slots and blocks that sequences are parked and preempted all the time. The results are
 * compared with a search without sequences: transformers' loop over all continuations of all beams. */
#include "tests/unit/unit.h"

#include "coordinator/schedule/choices.h"
#include "tests/support/paper.h"

#include <math.h>
#include <stdlib.h>

#define VOCAB      40
#define EOS        7
#define MAX_LEN    100
#define MAX_OUTPUT 24
#define MAX_SETS   8
#define MAX_STEPS  20000

/* ---- the reference, without sequences ---- */

struct text {
    int32_t token[MAX_LEN];
    int n; /* including the prompt */
    float sum, score;
    bool ends;
};

static struct text sampled_text(const struct token_list *prompt, const struct request_rules *rules, uint64_t seed,
                                double *mean)
{
    struct text x = {.n = (int)prompt->n};
    struct sampling own = rules->sampling;
    own.seed = seed;
    *mean = 0;
    memcpy(x.token, prompt->id, prompt->n * sizeof *x.token);
    for (int i = 0; i < rules->max_tokens; i++) {
        struct sampled s;
        x.token[x.n] = paper_next(x.token, x.n, (int)prompt->n, &own, VOCAB, &s);
        x.n++;
        *mean += s.logprob / (double)rules->max_tokens;
    }
    return x;
}

static int by_score(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    return x->sum != y->sum ? (x->sum < y->sum ? 1 : -1) : 0;
}

/* Merge sort keeps the order of equal elements, unlike qsort. */
static void sort_candidates(struct text *list, int n)
{
    for (int i = 1; i < n; i++) {
        struct text x = list[i];
        int k = i;
        for (; k > 0 && by_score(&list[k - 1], &x) > 0; k--)
            list[k] = list[k - 1];
        list[k] = x;
    }
}

/* transformers' _beam_search for one prompt. best: [num_beams]; *n_rounds: its number of rounds. Returns the number of
 * finished beams. */
static int beams_of(const struct token_list *prompt, const struct request_rules *rules, const struct search *how,
                    struct text *best, int *n_rounds)
{
    static struct text list[BEAM_MAX * VOCAB];
    struct text beam[BEAM_MAX] = {{.n = (int)prompt->n}};
    int n_beams = 1, n_best = 0, prompt_len = (int)prompt->n;
    double penalty = how->beam.length_penalty;
    memcpy(beam[0].token, prompt->id, prompt->n * sizeof beam[0].token[0]);
    for (*n_rounds = 1;; ++*n_rounds) {
        int n = 0, length = beam[0].n + 1 - prompt_len;
        for (int i = 0; i < n_beams; i++) {
            float logprob[VOCAB];
            paper_logprobs(beam[i].token, beam[i].n, VOCAB, logprob);
            for (int t = 0; t < VOCAB; t++) {
                if (t == EOS && rules->n_stop_ids > 0 && length - 1 < rules->sampling.min_tokens)
                    continue;
                list[n] = beam[i];
                list[n].token[list[n].n++] = t;
                list[n].sum += logprob[t];
                list[n].ends = (t == EOS && rules->n_stop_ids > 0) || length == rules->max_tokens;
                n++;
            }
        }
        sort_candidates(list, n);
        n_beams = 0;
        for (int i = 0; i < n && n_beams < how->num_beams; i++)
            if (!list[i].ends)
                beam[n_beams++] = list[i];
        for (int i = 0; i < how->num_beams; i++) {
            struct text x = list[i];
            x.score = x.sum / (float)pow(length, penalty);
            if (!x.ends)
                continue;
            int at = n_best < how->num_beams ? n_best++ : x.score > best[n_best - 1].score ? n_best - 1 : -1;
            for (; at > 0 && x.score > best[at - 1].score; at--)
                best[at] = best[at - 1];
            if (at >= 0)
                best[at] = x;
        }
        bool full = n_best == how->num_beams;
        int hoped = how->beam.early_stopping == EARLY_STOPPING_NEVER && penalty > 0 ? rules->max_tokens : length;
        if (n_beams == 0 || (full && how->beam.early_stopping == EARLY_STOPPING_TRUE) ||
            !(beam[0].sum / (float)pow(hoped, penalty) > (full ? best[n_best - 1].score : -1e9f)))
            return n_best;
    }
}

/* ---- the run ---- */

struct run {
    struct scheduler s;
    struct paper device;
    struct plan plan;
    struct choices_events events;
    struct choices choices[MAX_SETS];
    struct request_rules rules[MAX_SETS];
    struct token_list prompt[MAX_SETS]; /* a copy */
    int n_clients, n_priorities;        /* the sets belong to them at random */
    int n, n_finished, n_released, n_steps, n_choice_events;
    struct step_result queue[SCHEDULER_FLIGHTS];
    int n_queued;
};

static void check_text(const struct request *r, const struct token_list *prompt, const struct text *want)
{
    assert_int_equal(r->output.n, want->n - (int)prompt->n);
    assert_memory_equal(r->output.id, want->token + prompt->n, r->output.n * sizeof *r->output.id);
}

static void check_beams(const struct choices *set, const struct token_list *prompt)
{
    struct text best[BEAM_MAX];
    int n_rounds, n = beams_of(prompt, set->rules, &set->search, best, &n_rounds);
    assert_int_equal(set->beam.n_tokens, n_rounds);
    assert_true(n >= set->search.n);
    for (int i = 0; i < set->search.n; i++) {
        const struct request *r = set->choice[i];
        check_text(r, prompt, &best[i]);
        assert_true(fabsf(set->score[i] - best[i].score) <= 1e-6f * fabsf(best[i].score));
        assert_int_equal(r->finish, (int)r->output.n == set->rules->max_tokens ? FINISH_LENGTH : FINISH_STOP);
        assert_true(fabs(r->logprob_sum - (double)best[i].sum) < 1e-4);
    }
}

static void check_samples(const struct choices *set, const struct token_list *prompt)
{
    struct text all[RULES_MAX_CHOICES];
    double mean[RULES_MAX_CHOICES];
    for (int i = 0; i < set->n_members; i++)
        all[i] = sampled_text(prompt, set->rules, set->rules->sampling.seed + (uint64_t)i, &mean[i]);
    for (int i = 0; i < set->search.n; i++) {
        int best = -1; /* among the remaining ones */
        for (int k = 0; k < set->n_members; k++)
            if (all[k].n > 0 && (best < 0 || (set->n_members > set->search.n && mean[k] > mean[best] + 1e-9)))
                best = k;
        check_text(set->choice[i], prompt, &all[best]);
        assert_int_equal(set->choice[i]->finish, FINISH_LENGTH);
        all[best].n = 0;
    }
}

static void on_choice(void *context, struct choices *set, int i)
{
    struct run *run = context;
    assert_int_equal(set->finish, FINISH_NONE);
    assert_true(i < set->search.n && set->choice[i]->output.n > 0);
    run->n_choice_events++;
}

static void on_finish(void *context, struct choices *set)
{
    struct run *run = context;
    run->n_finished++;
    if (set->finish == FINISH_TIMEOUT)
        return;
    assert_int_equal(set->finish, FINISH_STOP);
    if (set->search.num_beams > 1)
        check_beams(set, &run->prompt[set - run->choices]);
    else
        check_samples(set, &run->prompt[set - run->choices]);
}

static void on_release(void *context, struct choices *set)
{
    struct run *run = context;
    run->n_released++;
    assert_true(set->times.finished > 0 || set->finish == FINISH_CANCELLED);
    choices_close(set); /* the address sanitizer detects a later access */
}

static void run_open(struct run *run, const struct limits *l, bool prefix_caching, bool foresees)
{
    struct err e = {0};
    memset(run, 0, sizeof *run);
    run->events = (struct choices_events){on_choice, on_finish, on_release, run};
    const struct scheduler_setup setup = {.limits = *l,
                                          .prefix_caching = prefix_caching,
                                          .foresees = foresees,
                                          .on_progress = choices_on_progress,
                                          .on_release = choices_on_release,
                                          .context = &run->events};
    assert_int_equal(plan_open(&run->plan, l, &e), 0);
    assert_int_equal(paper_open(&run->device, l, VOCAB, &e), 0);
    assert_int_equal(scheduler_open(&run->s, &setup, &e), 0);
}

static void run_close(struct run *run)
{
    for (int i = 0; i < run->n; i++)
        free(run->prompt[i].id);
    plan_close(&run->plan);
    paper_close(&run->device);
    scheduler_close(&run->s);
}

static struct choices *submit(struct run *run, const struct search *how, const struct request_rules *rules,
                              int n_prompt, uint64_t seed, double deadline)
{
    struct err e = {0};
    const char *field;
    int i = run->n++;
    struct choices *set = &run->choices[i];
    size_t n = (size_t)n_prompt;
    struct token_list own = {malloc(n * sizeof *own.id), n, n};
    run->prompt[i] = (struct token_list){malloc(n * sizeof *own.id), n, n};
    for (size_t k = 0; k < n; k++)
        own.id[k] = run->prompt[i].id[k] = random_below(&seed, VOCAB);
    run->rules[i] = *rules;
    assert_int_equal(search_check(how, &run->rules[i], &field, &e), 0);
    assert_int_equal(choices_open(set, how, &run->rules[i], &own, &e), 0);
    set->client = run->n_clients > 1 ? random_next(&seed) % (uint64_t)run->n_clients : 0;
    set->deadline = deadline;
    set->priority = run->n_priorities > 1 ? -(int)(random_next(&seed) % (uint64_t)run->n_priorities) : 0;
    assert_int_equal(choices_submit(set, &run->s, run->n_steps, &e), 0);
    return set;
}

static void check_memory(const struct run *run)
{
    const struct scheduler *s = &run->s;
    int held = 0, holders = 0;
    for (int i = 0; i < s->n_running; i++)
        held += s->running[i]->held[KV_MAIN].end;
    for (int i = 0; i < s->blocks[KV_MAIN].n; i++)
        holders += s->blocks[KV_MAIN].block[i].n_holders;
    assert_int_equal(held, holders);
    assert_int_equal(s->n_running + s->n_free_slots, s->setup.limits.max_seqs);
}

/* depth: plans that are made before the results of an earlier one are known. */
static void step(struct run *run, int depth)
{
    struct err e = {0};
    bool busy = scheduler_busy(&run->s);
    assert_true(run->n_steps < MAX_STEPS);
    run->n_steps++;
    if (busy) {
        plan_reset(&run->plan, (uint64_t)run->n_steps);
        scheduler_plan(&run->s, &run->plan, run->n_steps);
        const char *wrong = paper_execute(&run->device, &run->plan, &run->queue[run->n_queued++]);
        if (wrong != NULL)
            fail_msg("%s", wrong);
        check_memory(run);
    }
    if (run->n_queued > depth || (!busy && run->n_queued > 0)) {
        struct step_result oldest = run->queue[0];
        run->queue[0] = run->queue[1];
        run->n_queued--;
        assert_int_equal(scheduler_accept(&run->s, &oldest, run->n_steps, &e), 0);
        expect_none(&e);
    }
}

static void drain(struct run *run, int depth)
{
    while (scheduler_busy(&run->s) || run->n_queued > 0)
        step(run, depth);
    assert_int_equal(run->n_released, run->n);
    assert_int_equal(run->s.blocks[KV_MAIN].n_free, run->s.blocks[KV_MAIN].n);
    assert_int_equal(run->s.n_parked, 0);
}

/* ---- random sets ---- */

static void random_search(struct search *how, struct request_rules *rules, uint64_t *seed)
{
    static const double penalty[] = {1, 1, 0, -1, 0.5, 2};
    *rules = (struct request_rules){.sampling = {.repetition_penalty = 1, .seed = random_next(seed)},
                                    .max_tokens = 1 + random_below(seed, MAX_OUTPUT)};
    *how = (struct search){.n = 1 + random_below(seed, 3), .num_beams = 1};
    if (random_below(seed, 2) == 0) {
        how->num_beams = how->n > 1 ? how->n + random_below(seed, 4) : 2 + random_below(seed, BEAM_MAX - 1);
        how->beam.length_penalty = penalty[random_below(seed, 6)];
        how->beam.early_stopping = (enum early_stopping)random_below(seed, 3);
        rules->n_stop_ids = random_below(seed, 4) != 0;
        rules->stop_id[0] = EOS;
        rules->sampling.min_tokens = random_below(seed, 3) == 0 ? random_below(seed, rules->max_tokens + 1) : 0;
    } else if (random_below(seed, 2) == 0) {
        how->best_of = how->n + random_below(seed, 4);
    }
}

static void one_mixture(uint64_t *seed, int depth, uint64_t *preemptions, int *finished)
{
    int tight = random_below(seed, 2), max_seqs = 1 + random_below(seed, tight ? 4 : 20);
    const struct limits l = {.max_seqs = max_seqs,
                             .max_batch_tokens = max_seqs + random_below(seed, 60),
                             .max_len = MAX_LEN,
                             .max_logit_rows = max_seqs,
                             .n_blocks = MAX_LEN / KV_BLOCK_TOKENS + 1 + random_below(seed, tight ? 3 : 60)};
    struct run run;
    int n = 1 + random_below(seed, MAX_SETS);
    run_open(&run, &l, random_below(seed, 2) == 0, *seed / 4096 % 2 == 0);
    run.n_priorities = 1 + (int)(*seed / 8192 % 2);
    run.n_clients = 1 + random_below(seed, 3);
    while (run.n < n) {
        struct search how;
        struct request_rules rules;
        random_search(&how, &rules, seed);
        double deadline = random_below(seed, 10) == 0 ? run.n_steps + random_below(seed, 50) : 0;
        struct choices *set = submit(&run, &how, &rules, 1 + random_below(seed, 60), random_next(seed), deadline);
        for (int i = random_below(seed, 12); i > 0; i--)
            step(&run, depth);
        if (random_below(seed, 12) == 0 && set->scheduler != NULL)
            choices_cancel(set, FINISH_CANCELLED, run.n_steps);
    }
    drain(&run, depth);
    *preemptions += run.s.stats.n_preemptions;
    *finished += run.n_finished;
    run_close(&run);
}

static void random_mixtures(void **state)
{
    (void)state;
    uint64_t seed = 5, preemptions = 0;
    int finished = 0, n = getenv("LOCKSTEP_SANITIZED") != NULL ? 60 : 500;
    for (int trial = 0; trial < n; trial++)
        one_mixture(&seed, trial % SCHEDULER_FLIGHTS, &preemptions, &finished);
    print_message("# %d sets finished, %llu preemptions\n", finished, (unsigned long long)preemptions);
    assert_true(finished > 3 * n && preemptions > (uint64_t)n);
}

/* ---- single rules ---- */

static const struct request_rules plain = {.sampling = {.repetition_penalty = 1, .seed = 3}, .max_tokens = 10};
static const struct limits roomy = {
    .max_seqs = 16, .max_batch_tokens = 128, .max_len = MAX_LEN, .max_logit_rows = 16, .n_blocks = 100};

/* The prompt is fed once: 40 tokens, and 8 of them again for each further choice. */
static void choices_share_the_prompt(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct run run;
        run_open(&run, &roomy, caching != 0, true);
        submit(&run, &(struct search){.n = 4, .num_beams = 1}, &plain, 40, 1, 0);
        drain(&run, 0);
        assert_int_equal(run.n_finished, 1);
        assert_int_equal(run.n_choice_events, 4 * 10);
        assert_int_equal(run.device.n_fed, 40 + 3 * 8 + 4 * 9);
        run_close(&run);
    }
}

/* Two requests do not find each other's blocks if the cache is off. */
static void requests_do_not_share_without_the_cache(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct run run;
        run_open(&run, &roomy, caching != 0, true);
        for (int i = 0; i < 2; i++) {
            submit(&run, &(struct search){.n = 2, .num_beams = 1}, &plain, 40, 1, 0);
            while (run.n_finished == i)
                step(&run, 0);
        }
        assert_int_equal(run.device.n_fed, (40 + 8) + (caching != 0 ? 8 + 8 : 40 + 8) + 2 * 2 * 9);
        run_close(&run);
    }
}

/* A beam that forks feeds its last partial block again, never the whole prompt. */
static void beams_share_what_they_have_in_common(void **state)
{
    (void)state;
    for (int caching = 0; caching < 2; caching++) {
        struct run run;
        run_open(&run, &roomy, caching != 0, true);
        submit(&run, &(struct search){.n = 4, .num_beams = 4, .beam.length_penalty = 1}, &plain, 64, 1, 0);
        drain(&run, 0);
        assert_true(run.device.n_fed <= 64 + 9 * 4 * KV_BLOCK_TOKENS);
        assert_int_equal(run.s.stats.n_preemptions, 0);
        run_close(&run);
    }
}

static void choices_that_time_out_have_what_there_was(void **state)
{
    (void)state;
    for (int beams = 1; beams <= 3; beams += 2) {
        struct run run;
        run_open(&run, &roomy, true, true);
        submit(&run, &(struct search){.n = 2, .num_beams = beams, .beam.length_penalty = 1}, &plain, 5, 1, 6);
        struct choices *set = &run.choices[0];
        while (set->finish == FINISH_NONE && run.n_steps < 5)
            step(&run, 0);
        assert_int_equal(set->finish, FINISH_NONE);
        assert_int_equal(run.n_finished, 0);
        run.n_steps++;
        plan_reset(&run.plan, (uint64_t)run.n_steps);
        scheduler_plan(&run.s, &run.plan, 6);
        assert_int_equal(run.n_finished, 1);
        assert_int_equal(run.n_released, 1);
        assert_int_equal(run.s.blocks[KV_MAIN].n_free, run.s.blocks[KV_MAIN].n);
        assert_int_equal(scheduler_stats(&run.s).n_finished[FINISH_TIMEOUT], 2);
        run_close(&run);
    }
}

static void refuses(const struct search *how, const struct request_rules *rules, const char *field, const char *text)
{
    struct err e = {0};
    const char *found = NULL;
    assert_int_equal(search_check(how, rules, &found, &e), -1);
    assert_string_equal(found, field);
    assert_non_null(strstr(e.text, text));
}

static void refuses_what_it_cannot_do(void **state)
{
    (void)state;
    struct request_rules rules = plain;
    struct search how = {.n = 1, .num_beams = 1};
    struct err e = {0};
    const char *field;
    assert_int_equal(search_check(&how, &rules, &field, &e), 0);
    how.n = 0;
    refuses(&how, &rules, "n", "found 0");
    how.n = 3;
    how.best_of = 2;
    refuses(&how, &rules, "best_of", "found 2");
    how = (struct search){.n = 1, .num_beams = 11};
    refuses(&how, &rules, "num_beams", "found 11");
    how = (struct search){.n = 3, .num_beams = 2};
    refuses(&how, &rules, "n", "3 choices of 2 beams");
    how = (struct search){.n = 2, .num_beams = 2, .best_of = 3};
    refuses(&how, &rules, "best_of", "best_of 3");
    how = (struct search){.n = 1, .num_beams = 10};
    rules.n_stop_ids = 11;
    refuses(&how, &rules, "num_beams", "at most 20");
    rules.n_stop_ids = 10;
    assert_int_equal(search_check(&how, &rules, &field, &e), 0);
    rules.sampling.temperature = 0.5f;
    refuses(&how, &rules, "temperature", "0.5");
    rules.sampling.temperature = 0;
    rules.sampling.repetition_penalty = 1.1f;
    refuses(&how, &rules, "repetition_penalty", "not supported with beam search");
    rules = plain;
    rules.sampling.n_bias = 1;
    refuses(&how, &rules, "logit_bias", "not supported with beam search");
    rules = plain;
    rules.stop = &(struct stop_strings){.n = 1};
    refuses(&how, &rules, "stop", "not supported with beam search");
}

static void a_full_queue_takes_no_choices(void **state)
{
    (void)state;
    struct run run;
    struct err e = {0};
    run_open(&run, &roomy, true, true);
    run.s.setup.max_waiting = 1;
    submit(&run, &(struct search){.n = 2, .num_beams = 1}, &plain, 5, 1, 0);
    struct choices g;
    struct token_list prompt = {calloc(3, sizeof(int32_t)), 3, 3};
    assert_int_equal(choices_open(&g, &(struct search){.n = 2, .num_beams = 1}, &plain, &prompt, &e), 0);
    assert_int_equal(choices_submit(&g, &run.s, 0, &e), SCHEDULER_FULL);
    choices_cancel(&g, FINISH_CANCELLED, 0); /* has no effect */
    choices_close(&g);
    drain(&run, 0);
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_mixtures),
        cmocka_unit_test(choices_share_the_prompt),
        cmocka_unit_test(requests_do_not_share_without_the_cache),
        cmocka_unit_test(beams_share_what_they_have_in_common),
        cmocka_unit_test(choices_that_time_out_have_what_there_was),
        cmocka_unit_test(refuses_what_it_cannot_do),
        cmocka_unit_test(a_full_queue_takes_no_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
