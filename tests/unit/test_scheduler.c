/* tests/unit/test_scheduler.c - coordinator/scheduler.c on a device made of paper (tests/support/paper.h): thousands of random
 * schedules in which every request must get exactly what it gets alone, and what the limits, the order and the memory of
 * every plan must be like. */
#include "tests/unit/unit.h"

#include "coordinator/scheduler.h"
#include "tests/support/paper.h"
#include "tests/unit/letters.h"

#include <stdlib.h>

#define MAX_REQUESTS 40
#define MAX_OUTPUT   64
#define MAX_LEN      130
#define MAX_STEPS    20000

static struct tokenizer *tokenizer;

/* ---- what a request gets alone ---- */

struct outcome {
    int32_t token[MAX_OUTPUT];
    int n;
    char *text;
    enum finish_reason finish;
};

/* Where text that is final ends, before an incomplete character. */
static size_t text_of(const int32_t *token, int n, bool skip, char **text)
{
    struct err e = {0};
    size_t bytes;
    assert_int_equal(tokenizer_decode(tokenizer, token, (size_t)n, skip, text, &bytes, &e), 0);
    return n > 0 && token[n - 1] == LETTER_BYTE_C3 ? bytes - 3 : bytes;
}

/* Cut the text at the leftmost stop string at or after `from`, the longest of those that begin there. */
static bool cut(const struct request_rules *rules, char *text, size_t from)
{
    for (size_t at = from; at < strlen(text); at++) {
        size_t longest = 0;
        for (int i = 0; i < rules->stop.n; i++) {
            size_t n = strlen(rules->stop.text[i]);
            if (strncmp(text + at, rules->stop.text[i], n) == 0 && n > longest)
                longest = n;
        }
        if (longest > 0) {
            text[at + (rules->keep_stop ? longest : 0)] = '\0';
            return true;
        }
    }
    return false;
}

static struct outcome alone(const struct token_list *prompt, const struct request_rules *rules)
{
    struct outcome x = {0};
    int32_t all[MAX_LEN];
    size_t from = 0;
    memcpy(all, prompt->id, prompt->n * sizeof *all);
    while (x.finish == FINISH_NONE) {
        int n = (int)prompt->n + x.n;
        int32_t token = paper_next(all, n, (int)prompt->n, &rules->sampling, N_LETTERS, NULL);
        bool may_stop = x.n + 1 >= rules->sampling.min_tokens, is_stop = false;
        all[n] = x.token[x.n++] = token;
        for (int i = 0; i < rules->n_stop_ids && may_stop; i++)
            is_stop = is_stop || rules->stop_id[i] == token;
        free(x.text);
        size_t whole = text_of(x.token, x.n - (is_stop && rules->skip_special), rules->skip_special, &x.text);
        if (!may_stop)
            from = whole;
        bool stopped = may_stop && cut(rules, x.text, from);
        if (is_stop || stopped)
            x.finish = FINISH_STOP;
        else if (x.n == rules->max_tokens)
            x.finish = FINISH_LENGTH;
    }
    return x;
}

/* ---- the run ---- */

struct run {
    struct scheduler s;
    struct paper device;
    struct plan plan;
    struct request *request[MAX_REQUESTS]; /* NULL once given back */
    struct request_rules rules[MAX_REQUESTS];
    struct outcome want[MAX_REQUESTS];
    int last_fed[MAX_REQUESTS]; /* tokens fed up to now, of the running ones */
    int n, n_released, n_steps;
    int n_ended[FINISH_REASONS];
    double now;
    struct step_result queue[SCHEDULER_FLIGHTS];
    int n_queued;
};

static void on_progress(void *context, struct request *r)
{
    struct run *run = context;
    const struct outcome *want = &run->want[r->index];
    assert_true((int)r->output.n <= want->n);
    if (r->output.n > 0)
        assert_memory_equal(r->output.id, want->token, r->output.n * sizeof *r->output.id);
}

static void on_release(void *context, struct request *r)
{
    struct run *run = context;
    const struct outcome *want = &run->want[r->index];
    assert_ptr_equal(run->request[r->index], r);
    assert_int_equal(r->n_in_flight, 0);
    assert_true(r->times.finished >= r->times.arrived);
    if (r->finish == FINISH_CANCELLED || r->finish == FINISH_TIMEOUT) {
        assert_true((int)r->output.n < want->n);
    } else {
        assert_int_equal(r->output.n, want->n);
        assert_string_equal(r->text.data, want->text);
        assert_int_equal(r->finish, want->finish);
        assert_true(r->times.scheduled >= r->times.arrived && r->times.first_token >= r->times.scheduled);
    }
    run->n_ended[r->finish]++;
    run->n_released++;
    run->request[r->index] = NULL;
    request_close(r); /* whoever still looks at it is found by the address sanitizer */
    free(r);
}

static void run_open(struct run *run, const struct scheduler_setup *setup)
{
    struct err e = {0};
    memset(run, 0, sizeof *run);
    struct scheduler_setup own = *setup;
    own.tokenizer = tokenizer;
    own.on_progress = on_progress;
    own.on_release = on_release;
    own.context = run;
    assert_int_equal(plan_open(&run->plan, &own.limits, &e), 0);
    assert_int_equal(paper_open(&run->device, &own.limits, N_LETTERS, &e), 0);
    assert_int_equal(scheduler_open(&run->s, &own, &e), 0);
}

static void run_close(struct run *run)
{
    for (int i = 0; i < run->n; i++) {
        free(run->want[i].text);
        if (run->request[i] != NULL)
            request_close(run->request[i]);
        free(run->request[i]);
    }
    plan_close(&run->plan);
    paper_close(&run->device);
    scheduler_close(&run->s);
}

static struct request *make(struct run *run, const struct request_rules *rules, const int32_t *prompt, int n)
{
    struct request *r = calloc(1, sizeof *r);
    run->rules[run->n] = *rules;
    *r = (struct request){.rules = &run->rules[run->n], .index = run->n, .slot = -1};
    r->prompt = (struct token_list){malloc((size_t)n * sizeof *prompt), (size_t)n, (size_t)n};
    memcpy(r->prompt.id, prompt, (size_t)n * sizeof *prompt);
    run->want[run->n] = alone(&r->prompt, rules);
    run->request[run->n++] = r;
    return r;
}

static struct request *add(struct run *run, const struct request_rules *rules, const int32_t *prompt, int n)
{
    struct err e = {0};
    struct request *r = make(run, rules, prompt, n);
    assert_true(n + rules->max_tokens <= scheduler_max_len(&run->s));
    assert_int_equal(scheduler_add(&run->s, r, run->now, &e), 0);
    return r;
}

/* ---- what must hold for every plan ---- */

static struct request *in_slot(struct run *run, int slot)
{
    for (int i = 0; i < run->s.n_running; i++)
        if (run->s.running[i]->slot == slot)
            return run->s.running[i];
    fail_msg("nobody runs in slot %d", slot);
    return NULL;
}

static bool is_before(const struct request *a, const struct request *b)
{
    return a->priority < b->priority || (a->priority == b->priority && a->arrival < b->arrival);
}

/* Nobody who waits is overtaken, and a new sequence's parameters are the request's own, in terms of its own prompt. */
static void check_starts(struct run *run, const struct plan *p)
{
    for (int i = 0; i < p->n_starts; i++) {
        struct request *r = in_slot(run, p->start[i].slot);
        struct sampling want = r->rules->sampling;
        want.prompt_len = (int)r->prompt.n;
        assert_memory_equal(&p->start[i].sampling, &want, sizeof want);
        for (int k = 0; k < run->s.n_waiting; k++)
            assert_false(is_before(run->s.waiting[k], r));
        run->last_fed[r->index] = r->n_fed;
        for (int k = 0; k < p->n_seqs; k++)
            if (p->seq[k].slot == r->slot)
                run->last_fed[r->index] = p->seq[k].pos;
        assert_true(run->last_fed[r->index] % KV_BLOCK_TOKENS == 0);
        assert_true(run->last_fed[r->index] < (int)(r->prompt.n + r->output.n));
        const struct sampling *q = &r->rules->sampling;
        bool penalized = q->repetition_penalty != 1 || q->presence_penalty != 0 || q->frequency_penalty != 0;
        assert_int_equal(p->start[i].n_history, penalized ? run->last_fed[r->index] : 0);
        if (!run->s.setup.prefix_caching)
            assert_int_equal(run->last_fed[r->index], 0);
    }
}

/* Every token goes in once, in order, at its position, and never into a block that somebody else may read. */
static void check_sequences(struct run *run, const struct plan *p)
{
    const int32_t *token = p->token;
    for (int i = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        struct request *r = in_slot(run, s->slot);
        int known = (int)(r->prompt.n + r->output.n), end = s->pos + s->n_tokens;
        assert_int_equal(s->pos, run->last_fed[r->index]);
        run->last_fed[r->index] = end;
        assert_int_equal(s->n_logits, s->sample);
        assert_int_equal(s->sample, end >= known);
        assert_true(end - (int)r->prompt.n < r->rules->max_tokens); /* the last token is never fed */
        assert_int_equal(s->rope_len, r->prompt.n);
        for (int j = 0; j < s->n_tokens; j++, token++) {
            int pos = s->pos + j;
            if (pos < (int)r->prompt.n)
                assert_int_equal(*token, r->prompt.id[pos]);
            else
                assert_true(*token == -1 || (pos < known && *token == r->output.id[pos - (int)r->prompt.n]));
            assert_true(pos / KV_BLOCK_TOKENS < r->n_blocks);
            assert_int_equal(run->s.blocks.block[r->block[pos / KV_BLOCK_TOKENS]].n_holders, 1);
        }
    }
    assert_int_equal(token - p->token, p->n_tokens);
}

static void check_memory(struct run *run)
{
    struct scheduler *s = &run->s;
    int holders[512] = {0}, n_free = 0, in_list = 0;
    bool slot[64] = {false};
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        assert_false(slot[r->slot]);
        slot[r->slot] = true;
        assert_true(i == 0 || !is_before(r, s->running[i - 1]));
        for (int k = 0; k < r->n_blocks; k++)
            holders[r->block[k]]++;
    }
    for (int i = 0; i < s->n_free_slots; i++) {
        assert_false(slot[s->free_slot[i]]);
        slot[s->free_slot[i]] = true;
    }
    assert_int_equal(s->n_running + s->n_free_slots, s->setup.limits.max_seqs);
    for (int i = 0; i < s->blocks.n; i++) {
        assert_int_equal(s->blocks.block[i].n_holders, holders[i]);
        n_free += holders[i] == 0;
    }
    for (int i = s->blocks.oldest; i >= 0; i = s->blocks.block[i].newer, in_list++)
        assert_int_equal(holders[i], 0);
    assert_int_equal(s->blocks.n_free, n_free);
    assert_int_equal(in_list, n_free);
}

/* Nobody starves: every running sequence that could feed something does, unless the budget is used up; what decodes always
 * does; and no slot, budget and memory are left while somebody waits who could use them. */
static void check_progress(struct run *run, const struct plan *p, uint64_t n_preempted)
{
    struct scheduler *s = &run->s;
    /* What was kept for somebody who then had to go is not given to others in the same step. */
    bool full = p->n_tokens == s->setup.limits.max_batch_tokens || s->stats.n_preemptions != n_preempted;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        int known = (int)(r->prompt.n + r->output.n);
        bool in_plan = false;
        for (int k = 0; k < p->n_seqs; k++)
            in_plan = in_plan || p->seq[k].slot == r->slot;
        if (r->n_fed < known && (int)r->output.n + r->n_in_flight < r->rules->max_tokens)
            assert_true(full);
        if (!in_plan && r->n_fed >= known)
            assert_int_equal((int)r->output.n + r->n_in_flight, r->rules->max_tokens);
    }
    struct request *next = s->n_waiting > 0 ? s->waiting[0] : NULL;
    if (next != NULL && next->n_in_flight == 0 && s->stats.n_preemptions == n_preempted && s->n_free_slots > 0 &&
        !full) {
        int need = (int)(next->prompt.n + next->output.n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        assert_true(need + s->blocks.n / 100 > s->blocks.n_free);
    }
}

/* ---- steps ---- */

static void plan_step(struct run *run)
{
    uint64_t n_preempted = run->s.stats.n_preemptions;
    assert_true(run->n_steps < MAX_STEPS);
    plan_reset(&run->plan, (uint64_t)run->n_steps++);
    scheduler_plan(&run->s, &run->plan, run->now);
    const char *wrong = paper_execute(&run->device, &run->plan, &run->queue[run->n_queued++]);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    check_starts(run, &run->plan);
    check_sequences(run, &run->plan);
    check_memory(run);
    check_progress(run, &run->plan, n_preempted);
}

static void accept_step(struct run *run)
{
    struct err e = {0};
    struct step_result oldest = run->queue[0];
    run->queue[0] = run->queue[1];
    run->n_queued--;
    assert_int_equal(scheduler_accept(&run->s, &oldest, run->now, &e), 0);
    expect_none(&e);
    check_memory(run);
}

/* depth: plans that are made before the results of an earlier one are seen. */
static void step(struct run *run, int depth)
{
    run->now += 1;
    bool busy = scheduler_busy(&run->s);
    if (busy)
        plan_step(run);
    if (run->n_queued > depth || (!busy && run->n_queued > 0))
        accept_step(run);
}

static void drain(struct run *run, int depth)
{
    while (scheduler_busy(&run->s) || run->n_queued > 0)
        step(run, depth);
    assert_int_equal(run->n_released, run->n);
    assert_int_equal(run->s.blocks.n_free, run->s.blocks.n);
    assert_int_equal(run->s.n_free_slots, run->s.setup.limits.max_seqs);
}

/* ---- random schedules ---- */

static void random_rules(struct request_rules *rules, uint64_t *seed)
{
    static const char *const stop[] = {"aa", "b", "c\xc3\xa9", "z", "ab"};
    *rules = (struct request_rules){.max_tokens = 1 + random_below(seed, random_below(seed, 2) == 0 ? 60 : 12),
                                    .skip_special = random_below(seed, 4) != 0};
    struct sampling *p = &rules->sampling;
    p->seed = (uint64_t)random_below(seed, 1000);
    p->repetition_penalty = random_below(seed, 8) == 0 ? 1.5f : 1.0f;
    p->presence_penalty = random_below(seed, 8) == 0 ? 0.5f : 0.0f;
    p->frequency_penalty = random_below(seed, 8) == 0 ? 0.5f : 0.0f;
    rules->keep_stop = random_below(seed, 2) == 0;
    rules->stop = (struct stop_strings){random_below(seed, 3), stop + random_below(seed, 3)};
    if (random_below(seed, 3) != 0) {
        rules->stop_id[rules->n_stop_ids++] = LETTER_EOS;
        p->eos[p->n_eos++] = LETTER_EOS;
    }
    if (random_below(seed, 3) == 0)
        p->min_tokens = random_below(seed, rules->max_tokens + 1);
}

/* Prompts have beginnings in common: of two texts, up to a random place. Some consist of the same few blocks in any order. */
static int random_prompt(int32_t prompt[MAX_LEN], uint64_t *seed)
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

static void random_arrival(struct run *run, uint64_t *seed)
{
    struct err e = {0};
    struct request_rules rules;
    int32_t prompt[MAX_LEN];
    random_rules(&rules, seed);
    struct request *r = make(run, &rules, prompt, random_prompt(prompt, seed));
    r->priority = random_below(seed, 4) == 0 ? random_below(seed, 5) - 2 : 0;
    r->deadline = random_below(seed, 6) == 0 ? run->now + 1 + random_below(seed, 60) : 0;
    assert_int_equal(scheduler_add(&run->s, r, run->now, &e), 0);
}

static void random_cancel(struct run *run, uint64_t *seed)
{
    struct request *r = run->request[random_below(seed, run->n)];
    if (r == NULL)
        return;
    int before = run->s.blocks.n_free, held = r->finish == FINISH_NONE ? r->n_blocks : 0, index = r->index;
    bool in_flight = r->n_in_flight > 0;
    scheduler_cancel(&run->s, r, FINISH_CANCELLED, run->now);
    assert_true(run->s.blocks.n_free <= before + held);
    assert_true(in_flight == (run->request[index] != NULL)); /* let go of at once, or with its last result */
    check_memory(run);
}

struct sums {
    uint64_t preemptions, hits, queries;
    int ended[FINISH_REASONS];
};

static void one_schedule(uint64_t *seed, int depth, bool prefix_caching, struct sums *sums)
{
    struct scheduler_setup setup = {.prefix_caching = prefix_caching};
    struct limits *l = &setup.limits;
    l->max_seqs = 1 + random_below(seed, 12);
    l->max_batch_tokens = l->max_seqs + random_below(seed, random_below(seed, 2) == 0 ? 10 : 90);
    l->max_len = MAX_LEN;
    l->max_logit_rows = l->max_seqs;
    l->n_blocks =
        (MAX_LEN + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS + random_below(seed, random_below(seed, 4) != 0 ? 4 : 40);
    struct run run;
    run_open(&run, &setup);
    int n = 1 + random_below(seed, MAX_REQUESTS), often = 1 + random_below(seed, 6);
    while (run.n < n) {
        if (random_below(seed, often) == 0)
            random_arrival(&run, seed);
        if (run.n > 0 && random_below(seed, 40) == 0)
            random_cancel(&run, seed);
        step(&run, depth);
    }
    drain(&run, depth);
    struct scheduler_stats stats = scheduler_stats(&run.s);
    assert_int_equal(stats.n_running + stats.n_waiting + stats.n_blocks_used, 0);
    sums->preemptions += stats.n_preemptions;
    sums->hits += stats.prefix_hits;
    sums->queries += stats.prefix_queries;
    for (int i = 0; i < FINISH_REASONS; i++) {
        sums->ended[i] += run.n_ended[i];
        assert_int_equal(stats.n_finished[i], run.n_ended[i]);
    }
    run_close(&run);
}

static void random_schedules(void **state)
{
    (void)state;
    uint64_t seed = 11;
    struct sums sums[2] = {0};
    int n = getenv("LOCKSTEP_SANITIZED") != NULL ? 500 : 4000;
    for (int trial = 0; trial < n; trial++)
        one_schedule(&seed, trial % 2, trial / 2 % 2 != 0, &sums[trial / 2 % 2]);
    for (int i = 0; i < 2; i++) {
        print_message("# prefix cache %s: %llu preemptions, %llu of %llu tokens found, %d cancelled, %d timed out\n",
                      i == 0 ? "off" : "on", (unsigned long long)sums[i].preemptions, (unsigned long long)sums[i].hits,
                      (unsigned long long)sums[i].queries, sums[i].ended[FINISH_CANCELLED],
                      sums[i].ended[FINISH_TIMEOUT]);
        assert_true(sums[i].preemptions > (uint64_t)n / 2); /* all of it did happen */
        assert_true(sums[i].ended[FINISH_STOP] > n / 2 && sums[i].ended[FINISH_LENGTH] > n / 2);
        assert_true(sums[i].ended[FINISH_CANCELLED] > n / 10 && sums[i].ended[FINISH_TIMEOUT] > n / 10);
    }
    assert_int_equal(sums[0].queries, 0);
    assert_int_equal(sums[0].hits, 0);
    assert_true(sums[1].hits > sums[1].queries / 20);
}

/* ---- single rules ---- */

static const struct request_rules plain = {.sampling.repetition_penalty = 1, .max_tokens = 20, .skip_special = true};

static void fill(int32_t *prompt, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        prompt[i] = random_below(&seed, N_LETTERS);
}

static struct request *add_made(struct run *run, const struct request_rules *rules, int n, uint64_t seed)
{
    int32_t prompt[MAX_LEN];
    fill(prompt, n, seed);
    return add(run, rules, prompt, n);
}

static struct scheduler_setup setup_of(int max_seqs, int max_batch_tokens, int n_blocks)
{
    return (struct scheduler_setup){.limits = {max_seqs, max_batch_tokens, MAX_LEN, max_seqs, n_blocks},
                                    .prefix_caching = true};
}

static void decode_goes_on_beside_a_long_prompt(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(4, 8, 30);
    struct run run;
    run_open(&run, &setup);
    add_made(&run, &plain, 3, 1);
    add_made(&run, &plain, 60, 2);
    step(&run, 0); /* 3 + 5 */
    assert_int_equal(run.plan.n_seqs, 2);
    assert_int_equal(run.plan.seq[1].n_tokens, 5);
    for (int k = 1; k < 8; k++) {
        step(&run, 0);
        assert_int_equal(run.plan.n_seqs, 2);
        assert_int_equal(run.plan.n_tokens, 8);
        assert_int_equal(run.plan.seq[0].n_tokens, 1);
        assert_int_equal(run.plan.token[0], -1);
        assert_int_equal(run.plan.seq[1].n_tokens, 7);
        assert_int_equal(run.plan.seq[1].sample, 0);
    }
    step(&run, 0);
    assert_int_equal(run.plan.seq[1].n_tokens, 6);
    assert_int_equal(run.plan.seq[1].sample, 1);
    drain(&run, 0);
    run_close(&run);
}

/* 4 blocks for two that grow to 3 each: the later one gives way and loses nothing. */
static void the_youngest_is_preempted(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(4, 64, 4);
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct run run;
        run_open(&run, &setup);
        run.s.setup.prefix_caching = false;
        struct request *first = add_made(&run, &plain, 16, 1), *second = add_made(&run, &plain, 16, 2);
        const int first_index = first->index;
        while (second->n_preempted == 0)
            step(&run, depth);
        assert_int_equal(first->n_preempted, 0);
        assert_int_equal(second->state, REQUEST_WAITING);
        assert_int_equal(second->n_blocks, 0);
        int had = (int)second->output.n + second->n_in_flight;
        assert_true(had >= 15);
        while (run.request[first_index] != NULL)
            step(&run, depth);
        while (second->state == REQUEST_WAITING)
            step(&run, depth);
        assert_int_equal(second->output.n, had + (depth == 0));
        assert_int_equal(run.plan.seq[0].n_tokens, 16 + had); /* prompt and output again, in one chunk */
        drain(&run, depth);
        assert_int_equal(run.s.stats.n_preemptions, 1);
        run_close(&run);
    }
}

static void lower_priority_values_go_first(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(1, 64, 40);
    struct run run;
    run_open(&run, &setup);
    static const int priority[] = {5, 0, -3, 0, 5, 7};
    struct request *r[6];
    for (int i = 0; i < 6; i++) {
        r[i] = make(&run, &plain, (int32_t[]){i, i, i}, 3);
        r[i]->priority = priority[i];
        assert_int_equal(scheduler_add(&run.s, r[i], 0, &(struct err){0}), 0);
    }
    static const int order[] = {2, 1, 3, 0, 4, 5};
    for (int k = 0; k < 6; k++) {
        while (run.s.n_running == 0)
            step(&run, 0);
        assert_int_equal(run.s.running[0]->index, order[k]);
        while (run.n_released == k)
            step(&run, 0);
    }
    drain(&run, 0);
    run_close(&run);
}

/* Under pressure the one of the highest value goes, however early it came. */
static void priority_decides_who_is_preempted(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(4, 64, 4);
    struct run run;
    run_open(&run, &setup);
    struct request *low = make(&run, &plain, (int32_t[16]){1}, 16), *high = make(&run, &plain, (int32_t[16]){2}, 16);
    low->priority = 9;
    assert_int_equal(scheduler_add(&run.s, low, 0, &(struct err){0}), 0);
    step(&run, 0);
    assert_int_equal(scheduler_add(&run.s, high, 0, &(struct err){0}), 0);
    while (low->n_preempted == 0)
        step(&run, 0);
    assert_int_equal(high->n_preempted, 0);
    drain(&run, 0);
    run_close(&run);
}

static void the_queue_is_bounded(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(1, 64, 40);
    struct err e = {0};
    struct run run;
    setup.max_waiting = 2;
    run_open(&run, &setup);
    struct request *first = add_made(&run, &plain, 4, 1);
    add_made(&run, &plain, 4, 2);
    struct request *r = make(&run, &plain, (int32_t[]){1, 2}, 2);
    assert_int_equal(scheduler_add(&run.s, r, 0, &e), SCHEDULER_FULL);
    assert_null(r->block);
    expect_none(&e);
    step(&run, 0); /* the first one runs: there is a place */
    assert_int_equal(first->state, REQUEST_RUNNING);
    assert_int_equal(scheduler_add(&run.s, r, 0, &e), 0);
    drain(&run, 0);
    run_close(&run);
}

static void deadlines_end_requests(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(1, 64, 40);
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct run run;
        run_open(&run, &setup);
        struct request *running = make(&run, &plain, (int32_t[]){1}, 1),
                       *waiting = make(&run, &plain, (int32_t[]){2}, 1), *later = make(&run, &plain, (int32_t[]){3}, 1);
        running->deadline = 6;
        waiting->deadline = 4;
        for (int i = 0; i < 3; i++)
            assert_int_equal(scheduler_add(&run.s, run.request[i], 0, &(struct err){0}), 0);
        while (run.now < 3)
            step(&run, depth);
        assert_int_equal(run.n_ended[FINISH_TIMEOUT], 0);
        step(&run, depth);
        assert_int_equal(run.n_ended[FINISH_TIMEOUT], 1);
        assert_null(run.request[1]);
        step(&run, depth);
        assert_int_equal(running->finish, FINISH_NONE);
        step(&run, depth); /* it ends, and the next one starts in the same plan */
        assert_int_equal(later->state, REQUEST_RUNNING);
        drain(&run, depth);
        assert_int_equal(run.n_ended[FINISH_TIMEOUT], 2);
        run_close(&run);
    }
}

/* Blocks are free for the plan after the next step at the latest; here for the very next one. */
static void cancelling_frees_the_blocks(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(2, 64, 8);
    struct run run;
    struct request_rules rules = plain;
    rules.max_tokens = 60;
    run_open(&run, &setup);
    struct request *r = add_made(&run, &rules, 60, 1);
    step(&run, 1);
    step(&run, 1);
    assert_int_equal(r->n_in_flight, 1);
    assert_true(run.s.blocks.n_free <= 4);
    scheduler_cancel(&run.s, r, FINISH_CANCELLED, run.now);
    assert_int_equal(run.s.blocks.n_free, 8);
    assert_int_equal(run.s.n_running, 0);
    assert_int_equal(run.n_released, 0); /* a result is still under way */
    add_made(&run, &rules, 60, 2);
    step(&run, 1);
    assert_int_equal(run.s.n_running, 1);
    assert_int_equal(run.n_released, 1);
    drain(&run, 1);
    run_close(&run);
}

/* 48 tokens of prompt that come again: two blocks are found, and the last one is fed since its logits are wanted. */
static void a_prompt_is_found_again(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(4, 64, 20);
    struct run run;
    run_open(&run, &setup);
    struct request *a = add_made(&run, &plain, 48, 7), *b = add_made(&run, &plain, 48, 7);
    step(&run, 0);
    assert_int_equal(a->n_cached, 0);
    assert_int_equal(b->n_cached, 0); /* in the same plan nothing is there yet */
    struct request *c = add_made(&run, &plain, 48, 7), *d = add_made(&run, &plain, 49, 7);
    step(&run, 0);
    assert_int_equal(c->n_cached, 32);
    assert_int_equal(c->block[1], a->block[1]);
    assert_int_equal(d->n_cached, 48);
    assert_int_equal(run.s.stats.prefix_queries, 48 + 48 + 48 + 49);
    assert_int_equal(run.s.stats.prefix_hits, 32 + 48);
    drain(&run, 0);
    struct request *later = add_made(&run, &plain, 49, 7); /* nobody holds them any more */
    step(&run, 0);
    assert_int_equal(later->n_cached, 48);
    drain(&run, 0);
    run_close(&run);
}

/* What was used longest ago is given up first. */
static void old_blocks_are_evicted(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(1, 64, 7);
    struct request_rules one = plain;
    struct run run;
    one.max_tokens = 1;
    run_open(&run, &setup);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        add_made(&run, &one, 49, seed); /* 4 blocks, 3 of them full */
        drain(&run, 0);
    }
    static const struct {
        uint64_t seed;
        int cached;
    } round[] = {{1, 48}, {3, 0}, {1, 48}, {2, 0}, {3, 0}};
    for (size_t i = 0; i < sizeof round / sizeof round[0]; i++) {
        uint64_t hits = run.s.stats.prefix_hits;
        add_made(&run, &one, 49, round[i].seed);
        drain(&run, 0);
        if (run.s.stats.prefix_hits - hits != (uint64_t)round[i].cached)
            fail_msg("round %zu: %d tokens from the cache, expected %d", i, (int)(run.s.stats.prefix_hits - hits),
                     round[i].cached);
    }
    run_close(&run);
}

/* Rotations that change with the length: longer sequences share nothing. */
static void long_rotations_are_not_shared(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(1, 64, 20);
    struct run run;
    setup.rope_changes_at = 40;
    run_open(&run, &setup);
    static const struct {
        int n, cached;
    } round[] = {{40, 0}, {40, 32}, {41, 0}, {41, 0}, {38, 32}};
    for (size_t i = 0; i < sizeof round / sizeof round[0]; i++) {
        struct request *r = add_made(&run, &plain, round[i].n, 5);
        step(&run, 0);
        assert_int_equal(r->n_cached, round[i].cached);
        drain(&run, 0);
    }
    run_close(&run);
}

static void one_slot_one_token(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(1, 1, 9);
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct run run;
        run_open(&run, &setup);
        for (int i = 0; i < 4; i++)
            add_made(&run, &plain, 20, (uint64_t)i);
        drain(&run, depth);
        run_close(&run);
    }
}

static void refuses_results_of_another_step(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(2, 8, 9);
    struct run run;
    struct err e = {0};
    run_open(&run, &setup);
    add_made(&run, &plain, 3, 1);
    plan_step(&run);
    struct step_result other = run.queue[0];
    other.step = 2;
    assert_int_equal(scheduler_accept(&run.s, &other, 0, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "results of step 2: 1 tokens, expected 1 of step 0");
    other = run.queue[0];
    other.n_sampled = 0;
    e = (struct err){0};
    assert_int_equal(scheduler_accept(&run.s, &other, 0, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "results of step 0: 0 tokens, expected 1");
    accept_step(&run);
    drain(&run, 0);
    run_close(&run);
}

static void refuses_limits_that_starve(void **state)
{
    (void)state;
    struct scheduler_setup setup = setup_of(8, 7, 9);
    struct scheduler s;
    struct err e = {0};
    assert_int_equal(scheduler_open(&s, &setup, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "7 tokens a step", "8 sequences");
    scheduler_close(&s);
}

static int open_tokenizer(void **state)
{
    (void)state;
    tokenizer = letters_open();
    return tokenizer != NULL ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(&tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules),
        cmocka_unit_test(decode_goes_on_beside_a_long_prompt),
        cmocka_unit_test(the_youngest_is_preempted),
        cmocka_unit_test(lower_priority_values_go_first),
        cmocka_unit_test(priority_decides_who_is_preempted),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(deadlines_end_requests),
        cmocka_unit_test(cancelling_frees_the_blocks),
        cmocka_unit_test(a_prompt_is_found_again),
        cmocka_unit_test(old_blocks_are_evicted),
        cmocka_unit_test(long_rotations_are_not_shared),
        cmocka_unit_test(one_slot_one_token),
        cmocka_unit_test(refuses_results_of_another_step),
        cmocka_unit_test(refuses_limits_that_starve),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
