/* tests/unit/test_scheduler.c - coordinator/scheduler.c with a device made of paper: a KV cache of token ids, reached
 * through the block table as the real one is, and a "model" that hashes what it reads there. A block that two sequences
 * share, a token fed twice, or a parameter that reached the wrong slot gives another text than the plain loop below. */
#include "tests/unit/unit.h"

#include "coordinator/scheduler.h"
#include "tests/unit/letters.h"

#include <stdlib.h>

#define MAX_REQUESTS 24
#define MAX_SLOTS    8
#define MAX_BLOCKS   64

static struct tokenizer *tokenizer;

/* ---- the model and its reference ---- */

static uint64_t mix(uint64_t hash, int32_t token)
{
    hash = (hash ^ (uint64_t)(uint32_t)token) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static bool forbidden(const struct sampling *s, int n_output, int32_t token)
{
    for (int i = 0; i < s->n_eos && n_output < s->min_tokens; i++)
        if (s->eos[i] == token)
            return true;
    return false;
}

/* The next token after a sequence of this hash: few different ones, so that stop rules are met. */
static int32_t choose(uint64_t hash, const struct sampling *s, int n_output)
{
    static const int32_t id[] = {
        0, 1, 2, LETTER_AB, LETTER_BLANK, LETTER_BYTE_C3, LETTER_BYTE_A9, 0, 1, 2, LETTER_EOS, 3, 3, LETTER_BOS, 4, 1};
    uint64_t at = (hash ^ s->seed * 77) >> 20;
    while (forbidden(s, n_output, id[at % 16]))
        at++;
    return id[at % 16];
}

struct outcome {
    int32_t token[64];
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

static struct outcome reference(const struct token_list *prompt, const struct request_rules *rules)
{
    struct outcome x = {0};
    uint64_t hash = 0;
    size_t from = 0;
    for (size_t i = 0; i < prompt->n; i++)
        hash = mix(hash, prompt->id[i]);
    while (x.finish == FINISH_NONE) {
        int32_t token = choose(hash, &rules->sampling, x.n);
        bool may_stop = x.n + 1 >= rules->sampling.min_tokens, is_stop = false;
        hash = mix(hash, token);
        x.token[x.n++] = token;
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

/* ---- the device ---- */

struct device {
    struct limits limits;
    int table[MAX_SLOTS][MAX_BLOCKS];
    int32_t kv[MAX_BLOCKS][KV_BLOCK_TOKENS];
    int32_t last[MAX_SLOTS];
    struct sampling params[MAX_SLOTS];
    struct plan plan; /* as another rank would receive it */
};

static int32_t *cell(struct device *d, int slot, int pos)
{
    int block = d->table[slot][pos / KV_BLOCK_TOKENS];
    assert_true(block >= 0 && block < d->limits.n_blocks);
    return &d->kv[block][pos % KV_BLOCK_TOKENS];
}

/* Results of one step; sampled must be freed. */
static struct step_result execute(struct device *d, const struct plan *p)
{
    struct sampled *out = calloc((size_t)p->n_seqs + 1, sizeof *out);
    int n = 0, t = 0;
    for (int i = 0; i < p->n_blocks; i++)
        d->table[p->block[i].slot][p->block[i].index] = p->block[i].block;
    for (int i = 0; i < p->n_starts; i++)
        d->params[p->start[i].slot] = p->start[i].sampling;
    for (int i = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        for (int j = 0; j < s->n_tokens; j++, t++)
            *cell(d, s->slot, s->pos + j) = p->token[t] >= 0 ? p->token[t] : d->last[s->slot];
    }
    for (int i = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        uint64_t hash = 0;
        int len = s->pos + s->n_tokens;
        for (int pos = 0; s->sample != 0 && pos < len; pos++)
            hash = mix(hash, *cell(d, s->slot, pos));
        if (s->sample == 0)
            continue;
        const struct sampling *params = &d->params[s->slot];
        d->last[s->slot] = choose(hash, params, len - params->prompt_len);
        out[n++] = (struct sampled){.token = d->last[s->slot], .slot = s->slot};
    }
    return (struct step_result){p->step, n, out, n, NULL};
}

/* ---- the run ---- */

struct run {
    struct scheduler s;
    struct device device;
    struct plan plan;
    struct request *request[MAX_REQUESTS]; /* NULL once given back */
    struct outcome want[MAX_REQUESTS];
    int fed[MAX_REQUESTS]; /* tokens fed, by our own count */
    int n, n_started, n_done, n_tokens, n_wasted, n_steps;
    int busy_before; /* running requests before the plan was made */
};

static void on_progress(void *context, struct request *r)
{
    struct run *run = context;
    const struct outcome *want = &run->want[r->index];
    run->n_tokens++;
    assert_true((int)r->output.n <= want->n);
    assert_int_equal(r->output.id[r->output.n - 1], want->token[r->output.n - 1]);
}

static struct request *in_slot(struct run *run, int slot)
{
    for (int i = 0; i < run->s.n_running; i++)
        if (run->s.running[i]->slot == slot)
            return run->s.running[i];
    fail_msg("nobody runs in slot %d", slot);
    return NULL;
}

static void check_starts(struct run *run, const struct plan *p)
{
    int b = 0;
    for (int i = 0; i < p->n_starts; i++) {
        struct request *r = in_slot(run, p->start[i].slot);
        assert_int_equal(r->index, run->n_started++); /* first come, first served */
        assert_int_equal(p->start[i].sampling.prompt_len, r->prompt.n);
        assert_int_equal(p->start[i].sampling.seed, r->rules->sampling.seed);
        int need = ((int)r->prompt.n + r->rules->max_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        for (int k = 0; k < need; k++, b++) {
            assert_int_equal(p->block[b].slot, r->slot);
            assert_int_equal(p->block[b].index, k);
        }
    }
    assert_int_equal(b, p->n_blocks);
}

/* Every prompt token goes in once, in order, at its position; then the sampled ones. */
static void check_sequences(struct run *run, const struct plan *p)
{
    const int32_t *token = p->token;
    bool seen[MAX_SLOTS] = {false};
    for (int i = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        struct request *r = in_slot(run, s->slot);
        int prompt = (int)r->prompt.n, end = s->pos + s->n_tokens;
        assert_false(seen[s->slot]);
        seen[s->slot] = true;
        assert_int_equal(s->pos, run->fed[r->index]);
        run->fed[r->index] = end;
        assert_int_equal(s->sample, end >= prompt);
        assert_int_equal(s->n_logits, s->sample);
        assert_true(end - prompt < r->rules->max_tokens); /* the last token is never fed */
        assert_int_equal(s->rope_len, s->pos < prompt ? prompt : s->pos + 1);
        assert_true(s->pos < prompt ? end <= prompt : s->n_tokens == 1);
        for (int j = 0; j < s->n_tokens; j++, token++)
            assert_int_equal(*token, s->pos < prompt ? r->prompt.id[s->pos + j] : -1);
    }
}

static void check_memory(struct run *run)
{
    struct scheduler *s = &run->s;
    bool block[MAX_BLOCKS] = {false}, slot[MAX_SLOTS] = {false};
    int n_blocks = s->n_free_blocks, n_slots = s->n_free_slots;
    for (int i = 0; i < s->n_running; i++) {
        slot[s->running[i]->slot] = true;
        n_slots++;
        for (int k = 0; k < s->running[i]->n_blocks; k++, n_blocks++) {
            assert_false(block[s->running[i]->block[k]]);
            block[s->running[i]->block[k]] = true;
        }
    }
    for (int i = 0; i < s->n_free_blocks; i++) {
        assert_false(block[s->free_block[i]]);
        block[s->free_block[i]] = true;
    }
    for (int i = 0; i < s->n_free_slots; i++) {
        assert_false(slot[s->free_slot[i]]);
        slot[s->free_slot[i]] = true;
    }
    assert_int_equal(n_blocks, s->limits.n_blocks);
    assert_int_equal(n_slots, s->limits.max_seqs);
}

/* Nobody starves, and no budget is left while somebody could use it. */
static void check_progress(struct run *run, const struct plan *p)
{
    struct scheduler *s = &run->s;
    bool full = p->n_tokens == s->limits.max_batch_tokens;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        bool in_plan = false;
        for (int k = 0; k < p->n_seqs; k++)
            in_plan = in_plan || p->seq[k].slot == r->slot;
        if (r->n_fed < (int)r->prompt.n)
            assert_true(full);
        if (i < run->busy_before && !in_plan && r->n_fed >= (int)r->prompt.n)
            assert_int_equal(r->n_planned, r->rules->max_tokens);
    }
    struct request *next = s->first_waiting;
    int need = next != NULL ? ((int)next->prompt.n + next->rules->max_tokens + 15) / KV_BLOCK_TOKENS : 0;
    if (next != NULL && s->n_free_slots > 0 && need <= s->n_free_blocks)
        assert_true(full);
}

static struct step_result plan_step(struct run *run)
{
    struct err e = {0};
    run->busy_before = run->s.n_running;
    plan_reset(&run->plan, (uint64_t)run->n_steps++);
    scheduler_plan(&run->s, &run->plan, 0);
    struct plan *sent = &run->plan, *got = &run->device.plan;
    size_t bytes = plan_pack(sent);
    memcpy(got->message, sent->message, bytes);
    assert_int_equal(plan_unpack(got, bytes, N_LETTERS, &e), 0);
    expect_none(&e);
    check_starts(run, got);
    check_sequences(run, got);
    check_memory(run);
    check_progress(run, got);
    return execute(&run->device, got);
}

static void accept_step(struct run *run, struct step_result *result)
{
    struct err e = {0};
    int before = run->n_tokens;
    assert_int_equal(scheduler_accept(&run->s, result, 0, &e), 0);
    expect_none(&e);
    run->n_wasted += result->n_sampled - (run->n_tokens - before);
    free((void *)result->sampled);
    for (int i = 0; i < run->n; i++) {
        struct request *r = run->request[i];
        if (r == NULL || r->finish == FINISH_NONE || r->n_in_flight > 0)
            continue;
        const struct outcome *want = &run->want[i];
        assert_int_equal(r->output.n, want->n);
        assert_string_equal(r->text.data, want->text);
        assert_string_equal(finish_name(r->finish), finish_name(want->finish));
        request_close(r); /* whoever still looks at it is found by the address sanitizer */
        free(r);
        run->request[i] = NULL;
        run->n_done++;
    }
}

/* depth: plans that are made before the results of an earlier one are seen. */
static void drive(struct run *run, int depth)
{
    struct step_result queue[SCHEDULER_FLIGHTS + 1];
    int n = 0;
    while (scheduler_busy(&run->s) || n > 0) {
        bool busy = scheduler_busy(&run->s);
        assert_true(run->n_steps < 5000);
        if (busy)
            queue[n++] = plan_step(run);
        if (n > depth || !busy) {
            accept_step(run, &queue[0]);
            memmove(&queue[0], &queue[1], (size_t)--n * sizeof queue[0]);
        }
    }
    assert_int_equal(run->n_done, run->n);
    assert_int_equal(run->s.n_free_blocks, run->s.limits.n_blocks);
    assert_int_equal(run->s.n_free_slots, run->s.limits.max_seqs);
}

static void run_open(struct run *run, const struct limits *l)
{
    struct err e = {0};
    memset(run, 0, sizeof *run);
    assert_true(l->max_seqs <= MAX_SLOTS && l->n_blocks <= MAX_BLOCKS);
    run->device.limits = *l;
    memset(run->device.table, 0xff, sizeof run->device.table);
    assert_int_equal(plan_open(&run->plan, l, &e), 0);
    assert_int_equal(plan_open(&run->device.plan, l, &e), 0);
    const struct scheduler_setup setup = {
        .limits = *l, .tokenizer = tokenizer, .on_progress = on_progress, .context = run};
    assert_int_equal(scheduler_open(&run->s, &setup, &e), 0);
}

static void run_close(struct run *run)
{
    for (int i = 0; i < run->n; i++)
        free(run->want[i].text);
    plan_close(&run->plan);
    plan_close(&run->device.plan);
    scheduler_close(&run->s);
}

static void add(struct run *run, const struct request_rules *rules, int n_prompt, uint64_t seed)
{
    struct err e = {0};
    struct request *r = calloc(1, sizeof *r);
    *r = (struct request){.rules = rules, .index = run->n, .slot = -1};
    r->prompt = (struct token_list){calloc((size_t)n_prompt, sizeof(int32_t)), (size_t)n_prompt, (size_t)n_prompt};
    for (int i = 0; i < n_prompt; i++)
        r->prompt.id[i] = random_below(&seed, N_LETTERS);
    run->want[run->n] = reference(&r->prompt, rules);
    run->request[run->n++] = r;
    assert_true(n_prompt + rules->max_tokens <= scheduler_max_len(&run->s));
    assert_int_equal(scheduler_add(&run->s, r, 0, &e), 0);
}

/* ---- the tests ---- */

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

static void random_rules(struct request_rules *rules, uint64_t *seed)
{
    static const char *const stop[] = {"aab", "abc", "c\xc3\xa9", "bb b", "ab"};
    *rules =
        (struct request_rules){.max_tokens = 1 + random_below(seed, 40), .skip_special = random_below(seed, 4) != 0};
    rules->sampling.seed = (uint64_t)random_below(seed, 1000);
    rules->keep_stop = random_below(seed, 2) == 0;
    rules->stop = (struct stop_strings){random_below(seed, 4), stop + random_below(seed, 2)};
    if (random_below(seed, 3) != 0) {
        rules->stop_id[rules->n_stop_ids++] = LETTER_EOS;
        rules->sampling.eos[rules->sampling.n_eos++] = LETTER_EOS;
    }
    if (random_below(seed, 4) == 0) {
        rules->stop_id[rules->n_stop_ids++] = 4;
        rules->sampling.eos[rules->sampling.n_eos++] = 4;
    }
    if (random_below(seed, 3) == 0)
        rules->sampling.min_tokens = random_below(seed, rules->max_tokens + 1);
}

static void random_runs(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int wasted[2] = {0, 0}, by_stop = 0, by_length = 0;
    for (int trial = 0; trial < 400; trial++) {
        struct limits l = {1 + random_below(&seed, MAX_SLOTS), 0, 90, 0, 6 + random_below(&seed, 30)};
        l.max_batch_tokens = l.max_seqs + random_below(&seed, 30);
        l.max_logit_rows = l.max_seqs;
        struct request_rules rules[MAX_REQUESTS];
        int length[MAX_REQUESTS], n = 1 + random_below(&seed, MAX_REQUESTS);
        for (int i = 0; i < n; i++) {
            random_rules(&rules[i], &seed);
            length[i] = 1 + random_below(&seed, random_below(&seed, 3) == 0 ? 50 : 12);
        }
        for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
            struct run run;
            run_open(&run, &l);
            for (int i = 0; i < n; i++)
                add(&run, &rules[i], length[i], (uint64_t)trial * 100 + (uint64_t)i);
            drive(&run, depth);
            wasted[depth] += run.n_wasted;
            for (int i = 0; i < n; i++) {
                by_stop += run.want[i].finish == FINISH_STOP;
                by_length += run.want[i].finish == FINISH_LENGTH;
            }
            run_close(&run);
        }
    }
    assert_int_equal(wasted[0], 0);
    assert_true(wasted[1] > 100); /* one token of whoever ends otherwise than by length */
    assert_true(by_stop > 500 && by_length > 500);
}

static const struct request_rules plain = {.max_tokens = 20, .skip_special = true};

static void decode_goes_on_beside_a_long_prompt(void **state)
{
    (void)state;
    const struct limits l = {4, 8, 100, 4, 30};
    struct run run;
    run_open(&run, &l);
    add(&run, &plain, 3, 1);
    add(&run, &plain, 60, 2);
    free((void *)plan_step(&run).sampled); /* 3 + 5 */
    assert_int_equal(run.plan.n_seqs, 2);
    assert_int_equal(run.plan.seq[1].n_tokens, 5);
    for (int step = 1; step < 8; step++) {
        free((void *)plan_step(&run).sampled);
        assert_int_equal(run.plan.n_seqs, 2);
        assert_int_equal(run.plan.n_tokens, 8);
        assert_int_equal(run.plan.seq[0].n_tokens, 1);
        assert_int_equal(run.plan.token[0], -1);
        assert_int_equal(run.plan.seq[1].n_tokens, 7);
        assert_int_equal(run.plan.seq[1].pos, 5 + 7 * (step - 1));
        assert_int_equal(run.plan.seq[1].sample, 0);
    }
    free((void *)plan_step(&run).sampled);
    assert_int_equal(run.plan.seq[1].n_tokens, 6);
    assert_int_equal(run.plan.seq[1].sample, 1);
    for (int i = 0; i < run.n; i++) {
        request_close(run.request[i]);
        free(run.request[i]);
    }
    run_close(&run);
}

static void waits_for_blocks(void **state)
{
    (void)state;
    const struct limits l = {4, 64, 64, 4, 4}; /* 4 blocks: two requests of 32 tokens, and no more */
    struct request_rules rules = {.max_tokens = 16, .skip_special = true};
    struct run run;
    run_open(&run, &l);
    assert_int_equal(scheduler_max_len(&run.s), 64);
    for (int i = 0; i < 5; i++)
        add(&run, &rules, 16, (uint64_t)i);
    struct request_rules small = {.max_tokens = 1, .skip_special = true};
    add(&run, &small, 1, 9); /* would fit beside them sooner, but it came last */
    struct step_result result = plan_step(&run);
    assert_int_equal(run.s.n_running, 2);
    assert_int_equal(run.s.n_free_blocks, 0);
    accept_step(&run, &result);
    drive(&run, 0);
    run_close(&run);
    const struct limits short_l = {1, 64, 50, 1, MAX_BLOCKS};
    run_open(&run, &short_l);
    assert_int_equal(scheduler_max_len(&run.s), 50);
    run_close(&run);
}

static void one_slot_one_token(void **state)
{
    (void)state;
    const struct limits l = {1, 1, 40, 1, 3};
    for (int depth = 0; depth < SCHEDULER_FLIGHTS; depth++) {
        struct run run;
        run_open(&run, &l);
        for (int i = 0; i < 4; i++)
            add(&run, &plain, 20, (uint64_t)i);
        drive(&run, depth);
        run_close(&run);
    }
}

static void refuses_results_of_another_step(void **state)
{
    (void)state;
    const struct limits l = {2, 8, 40, 2, 6};
    struct run run;
    struct err e = {0};
    run_open(&run, &l);
    add(&run, &plain, 3, 1);
    struct step_result result = plan_step(&run), other = result;
    other.step = 2;
    assert_int_equal(scheduler_accept(&run.s, &other, 0, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "results of step 2: 1 tokens, expected 1 of step 0");
    other = result;
    other.n_sampled = 0;
    e = (struct err){0};
    assert_int_equal(scheduler_accept(&run.s, &other, 0, &e), -1);
    EXPECT_PARTS(&e, ERR_INTERNAL, "results of step 0: 0 tokens, expected 1");
    accept_step(&run, &result);
    drive(&run, 0);
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_runs),
        cmocka_unit_test(decode_goes_on_beside_a_long_prompt),
        cmocka_unit_test(waits_for_blocks),
        cmocka_unit_test(one_slot_one_token),
        cmocka_unit_test(refuses_results_of_another_step),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
