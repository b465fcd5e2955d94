/* tests/support/schedule.c - see schedule.h. */
#include "tests/support/schedule.h"
#include "tests/unit/letters.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define MAX_STEPS 20000

const struct request_rules schedule_plain = {.sampling.repetition_penalty = 1, .max_tokens = 20, .skip_special = true};

static struct tokenizer *tokenizer;

int schedule_open_letters(void **state)
{
    (void)state;
    tokenizer = letters_open();
    return tokenizer != NULL ? 0 : -1;
}

int schedule_close_letters(void **state)
{
    (void)state;
    tokenizer_close(&tokenizer);
    return 0;
}

struct scheduler_setup schedule_setup(int max_seqs, int max_batch_tokens, int n_blocks)
{
    return (struct scheduler_setup){.limits = {.max_seqs = max_seqs,
                                               .max_batch_tokens = max_batch_tokens,
                                               .max_len = SCHEDULE_MAX_LEN,
                                               .max_logit_rows = max_seqs,
                                               .n_blocks = n_blocks},
                                    .prefix_caching = true};
}

/* ---- the result of a request alone ---- */

/* Finds the end of the final text, before an incomplete character, which skipped tokens do not end. */
static size_t text_of(const int32_t *token, int n, bool skip, char **text)
{
    struct err e = {0};
    size_t bytes;
    assert_int_equal(tokenizer_decode(tokenizer, token, (size_t)n, skip, text, &bytes, &e), 0);
    while (skip && n > 0 && (token[n - 1] == LETTER_BOS || token[n - 1] == LETTER_EOS))
        n--;
    return n > 0 && token[n - 1] == LETTER_BYTE_C3 ? bytes - 3 : bytes;
}

/* Cuts the text at the leftmost stop string at or after `from`, the longest of those that begin there. */
static bool cut(const struct request_rules *rules, char *text, size_t from)
{
    for (size_t at = from; at < strlen(text); at++) {
        size_t longest = 0;
        for (int i = 0; rules->stop != NULL && i < rules->stop->n; i++) {
            size_t n = strlen(rules->stop->string[i].text);
            if (strncmp(text + at, rules->stop->string[i].text, n) == 0 && n > longest)
                longest = n;
        }
        if (longest > 0) {
            text[at + (rules->keep_stop ? longest : 0)] = '\0';
            return true;
        }
    }
    return false;
}

static struct schedule_outcome alone(const struct token_list *prompt, const struct request_rules *rules)
{
    struct schedule_outcome x = {0};
    int32_t all[SCHEDULE_LONGEST];
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

static void on_progress(void *context, struct request *r)
{
    struct schedule *run = context;
    const struct schedule_outcome *want = &run->want[r->index];
    assert_true((int)r->output.n <= want->n);
    if (r->output.n > 0)
        assert_memory_equal(r->output.id, want->token, r->output.n * sizeof *r->output.id);
}

static void on_release(void *context, struct request *r)
{
    struct schedule *run = context;
    const struct schedule_outcome *want = &run->want[r->index];
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
    request_close(r); /* the address sanitizer detects a later access */
    free(r);
}

static void open_run(struct schedule *run, const struct scheduler_setup *setup, int n_blocks, int n_window_blocks)
{
    struct err e = {0};
    struct limits device = setup->limits;
    device.n_blocks = n_blocks;
    device.n_window_blocks = n_window_blocks;
    memset(run, 0, sizeof *run);
    struct scheduler_setup own = *setup;
    own.tokenizer = tokenizer;
    own.on_progress = on_progress;
    own.on_release = on_release;
    own.context = own.drafts.context = run;
    assert_int_equal(plan_open(&run->plan, &own.limits, &e), 0);
    const struct limits small = limits_of_draft_model(&own.limits);
    if (small.max_len > 0)
        assert_int_equal(paper_open(&run->draft_device, &small, N_LETTERS, &e), 0);
    assert_int_equal(paper_open(&run->device, &device, N_LETTERS, &e), 0); /* both sample like the one opened last */
    run->device.draft_model = &run->draft_device;
    assert_int_equal(scheduler_open(&run->s, &own, &e), 0);
}

void schedule_open(struct schedule *run, const struct scheduler_setup *setup)
{
    open_run(run, setup, setup->limits.n_blocks, setup->limits.n_window_blocks);
}

void schedule_open_shared(struct schedule *run, const struct scheduler_setup *setup, const struct units *u, int number,
                          uint64_t *kv)
{
    const struct unit_holder *h = &u->holder[KV_KINDS * number];
    open_run(run, setup, u->n * h[KV_MAIN].share.per_unit, u->n * h[KV_WINDOWED].share.per_unit);
    for (int kind = 0; kind < run->s.n_kinds; kind++) {
        free(run->device.kv[kind]);
        run->device.kv[kind] = kv;
    }
    run->units = u;
    run->number = number;
}

void schedule_close_shared(struct schedule *run)
{
    run->device.kv[KV_MAIN] = run->device.kv[KV_WINDOWED] = NULL;
    schedule_close(run);
}

void schedule_close(struct schedule *run)
{
    for (int i = 0; i < run->n; i++) {
        free(run->want[i].text);
        if (run->request[i] != NULL)
            request_close(run->request[i]);
        free(run->request[i]);
    }
    plan_close(&run->plan);
    paper_close(&run->device);
    paper_close(&run->draft_device);
    scheduler_close(&run->s);
}

int schedule_propose(void *context, struct request *r, int n, int32_t *token)
{
    struct schedule *run = context;
    const struct schedule_outcome *want = &run->want[r->index];
    int known = (int)r->output.n,
        right = random_below(&run->draft_seed, 2) == 0 ? n : random_below(&run->draft_seed, n);
    n = random_below(&run->draft_seed, n + 1);
    for (int i = 0; i < n; i++) {
        bool is_right = i < right && known + i < want->n;
        token[i] = is_right ? want->token[known + i] : random_below(&run->draft_seed, N_LETTERS);
    }
    return n;
}

struct request *schedule_make(struct schedule *run, const struct request_rules *rules, const int32_t *prompt, int n)
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

struct request *schedule_add(struct schedule *run, const struct request_rules *rules, int n, uint64_t seed)
{
    struct err e = {0};
    int32_t prompt[SCHEDULE_MAX_LEN];
    for (int i = 0; i < n; i++)
        prompt[i] = random_below(&seed, N_LETTERS);
    struct request *r = schedule_make(run, rules, prompt, n);
    assert_true(n + rules->max_tokens <= scheduler_max_len(&run->s));
    assert_int_equal(scheduler_add(&run->s, r, run->now, &e), 0);
    return r;
}

/* ---- invariants of every plan ---- */

static struct request *in_slot(const struct schedule *run, int slot)
{
    for (int i = 0; i < run->s.n_running; i++)
        if (run->s.running[i]->slot == slot)
            return run->s.running[i];
    fail_msg("no request runs in slot %d", slot);
    return NULL;
}

static bool is_before(const struct request *a, const struct request *b)
{
    return a->priority < b->priority || (a->priority == b->priority && a->arrival < b->arrival);
}

/* Returns whether w, which waits, ran fewer sequences when start i of the plan was made than its owner ran then: a
 * party, or a client. */
static bool ran_fewer(const struct schedule *run, const struct plan *p, int i, const struct sharer *w,
                      const struct sharer *r)
{
    int n = r->n_running;
    for (; i < p->n_starts; i++) {
        const struct sharer *party = &in_slot(run, p->start[i].slot)->queue->as;
        n -= party == r || party->client == r;
    }
    return w->n_running < n;
}

/* Tells whether the waiting w was overtaken by start i. Clients take turns, and the parties of a client. */
static bool is_overtaken(const struct schedule *run, const struct request *w, const struct plan *p, int i)
{
    const struct request *r = in_slot(run, p->start[i].slot);
    const struct sharer *a = &w->queue->as, *b = &r->queue->as;
    if (w->queue == r->queue)
        return is_before(w, r);
    if (w->queue->passed || w->priority != r->priority)
        return !w->queue->passed && w->priority < r->priority;
    return a->client == b->client ? ran_fewer(run, p, i, a, b) : ran_fewer(run, p, i, a->client, b->client);
}

/* No waiting request is overtaken, and a new sequence's parameters are the request's own, in terms of its own
 * prompt. */
static void check_starts(struct schedule *run, const struct plan *p)
{
    for (int i = 0; i < p->n_starts; i++) {
        struct request *r = in_slot(run, p->start[i].slot);
        struct sampling want = r->rules->sampling;
        want.prompt_len = (int)r->prompt.n;
        assert_memory_equal(&p->start[i].sampling, &want, sizeof want);
        for (int k = 0; k < run->s.n_queues; k++)
            for (int at = 0; at < run->s.queue[k]->n_waiting; at++)
                assert_false(is_overtaken(run, run->s.queue[k]->waiting[at], p, i));
        run->last_fed[r->index] = r->n_fed;
        run->drafted[r->index] = false;
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

/* Drafts of the same model are correct, unless penalties depend on tokens that a plan had no room for. The last one of
 * a sequence may still be in flight. */
static void check_drafts(const struct schedule *run, const struct request *r, int n)
{
    const struct sampling *p = &r->rules->sampling;
    const struct schedule_outcome *want = &run->want[r->index];
    bool sure = p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0;
    for (int i = 0; i < n && run->s.drafter.slot != NULL && sure && (int)r->output.n + i < want->n; i++)
        if (i + 1 < n || r->draft[i] != PLAN_DRAFTED)
            assert_int_equal(r->draft[i], want->token[(int)r->output.n + i]);
}

/* The step in flight knows its drafts once the draft model's results have come. */
static void check_known_drafts(const struct schedule *run)
{
    for (int i = 0; i < run->s.n_running && run->s.drafter.n_under_way == 0; i++) {
        const struct request *r = run->s.running[i];
        check_drafts(run, r, r->n_drafts);
        for (int k = 0; k < r->n_drafts; k++)
            assert_true(r->draft[k] >= 0);
    }
}

/* Every token is fed once, in order, at its position, and never into a block that another sequence may read. */
static void check_sequences(struct schedule *run, const struct plan *p)
{
    const int32_t *token = p->token;
    for (int i = 0; i < p->n_seqs; i++) {
        const struct plan_seq *s = &p->seq[i];
        struct request *r = in_slot(run, s->slot);
        int known = (int)(r->prompt.n + r->output.n), end = s->pos + s->n_tokens;
        int n_drafts = s->sample > 1 ? s->sample - 1 : 0;
        /* Positions of wrong drafts are fed again. */
        assert_int_equal(s->pos, run->drafted[r->index] ? known - 1 : run->last_fed[r->index]);
        run->last_fed[r->index] = end;
        run->drafted[r->index] = n_drafts > 0;
        check_drafts(run, r, n_drafts);
        assert_int_equal(s->n_logits, s->sample);
        assert_int_equal(s->sample - n_drafts, end - n_drafts >= known);
        assert_true(n_drafts == 0 || (s->pos == known - 1 && s->n_tokens == 1 + n_drafts));
        assert_true(end - (int)r->prompt.n < r->rules->max_tokens); /* the last token is never fed */
        assert_int_equal(s->rope_len, r->prompt.n);
        for (int j = 0; j < s->n_tokens; j++, token++) {
            int pos = s->pos + j;
            assert_true(*token != PLAN_DRAFTED || run->s.setup.limits.draft_ranks == 0);
            if (pos < (int)r->prompt.n)
                assert_int_equal(*token, r->prompt.id[pos]);
            else
                assert_true((*token == -1 && j == 0) ||
                            *token == (pos < known ? r->output.id[pos - (int)r->prompt.n] : r->draft[pos - known]));
            for (int kind = 0; kind < run->s.n_kinds; kind++) {
                const struct held_blocks *held = &r->held[kind];
                int at = pos / KV_BLOCK_TOKENS;
                assert_true(at >= held->begin && at < held->end);
                assert_int_equal(run->s.blocks[kind].block[held->block[at]].n_holders, 1);
            }
        }
    }
    assert_int_equal(token - p->token, p->n_tokens);
}

static void check_kind(const struct scheduler *s, int kind)
{
    const struct blocks *b = &s->blocks[kind];
    int holders[512] = {0}, n_free = 0, n_there = 0, in_list = 0;
    assert_true((size_t)b->most <= sizeof holders / sizeof *holders);
    for (int i = 0; i < s->n_running; i++) {
        const struct held_blocks *held = &s->running[i]->held[kind];
        for (int k = held->begin; k < held->end; k++)
            holders[held->block[k]]++;
    }
    for (int i = 0; i < b->most; i++) {
        bool away = b->block[i].away;
        assert_int_equal(b->block[i].n_holders, holders[i]);
        n_free += holders[i] == 0 && !away;
        n_there += holders[i] > 0 || !away;
    }
    assert_int_equal(b->n, n_there);
    for (int i = b->oldest; i >= 0; i = b->block[i].newer, in_list++)
        assert_true(holders[i] == 0 && !b->block[i].away);
    assert_int_equal(b->n_free, n_free);
    assert_int_equal(in_list, n_free);
}

/* The draft model's blocks belong to the same sequences. */
static void check_draft_memory(const struct schedule *run)
{
    const struct drafter *d = &run->s.drafter;
    int holders[512] = {0}, n_free = 0;
    assert_true((size_t)d->blocks.n <= sizeof holders / sizeof *holders);
    for (int i = 0; i < run->s.n_running; i++) {
        const struct drafted *x = &d->slot[run->s.running[i]->slot];
        for (int k = 0; k < x->n_blocks; k++)
            holders[x->block[k]]++;
    }
    for (int i = 0; i < d->blocks.n; i++) {
        assert_int_equal(d->blocks.block[i].n_holders, holders[i]);
        n_free += holders[i] == 0;
    }
    assert_int_equal(d->blocks.n_free, n_free);
}

void schedule_check_memory(struct schedule *run)
{
    if (run->s.drafter.slot != NULL)
        check_draft_memory(run);
    struct scheduler *s = &run->s;
    bool slot[64] = {false};
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        assert_false(slot[r->slot]);
        slot[r->slot] = true;
        assert_true(i == 0 || !is_before(r, s->running[i - 1]));
    }
    for (int i = 0; i < s->n_free_slots; i++) {
        assert_false(slot[s->free_slot[i]]);
        slot[s->free_slot[i]] = true;
    }
    assert_int_equal(s->n_running + s->n_free_slots, s->setup.limits.max_seqs);
    for (int kind = 0; kind < s->n_kinds; kind++)
        check_kind(s, kind);
}

/* Returns the blocks that suffice for a sequence of n tokens to begin: those of a windowed kind are reused. */
static int blocks_to_start(const struct scheduler *s, int kind, int n)
{
    int all = (n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS, window = limits_window(&s->setup.limits, kind);
    return window > 0 && limits_window_blocks(window) < all ? limits_window_blocks(window) : all;
}

/* The blocks that r is expected to have in so many steps, rounded up twice; 0: it has ended. */
static int blocks_in(const struct scheduler *s, const struct request *r, int steps)
{
    const struct request_rules *rules = r->rules;
    int left = lengths_left(&s->lengths, (int)r->output.n, rules->max_tokens, rules->fills);
    return steps > left ? 0 : ((int)(r->prompt.n + r->output.n) + steps) / KV_BLOCK_TOKENS + 2;
}

/* Will r and the running sequences find room as they grow, whatever is shared? */
static bool can_grow(const struct scheduler *s, const struct request *r)
{
    bool always = true;
    for (int steps = 0; steps <= SCHEDULE_LONGEST && always; steps++) {
        int needed = blocks_in(s, r, steps), room = s->blocks[KV_MAIN].n_free;
        for (int i = 0; i < s->n_running; i++) {
            needed += blocks_in(s, s->running[i], steps);
            for (int k = s->running[i]->held[KV_MAIN].begin; k < s->running[i]->held[KV_MAIN].end; k++)
                room += s->blocks[KV_MAIN].block[s->running[i]->held[KV_MAIN].block[k]].n_holders == 1;
        }
        always = needed <= room;
    }
    for (int kind = 0; kind < s->n_kinds; kind++) {
        int window = limits_window(&s->setup.limits, kind);
        if (window > 0) /* whole windows for all */
            always = always && (s->n_running + 1) * limits_window_blocks(window) <= s->blocks[kind].n_free;
    }
    return always;
}

static bool has_room(const struct scheduler *s, const struct request *r)
{
    bool all = !s->setup.foresees || s->n_running == 0 || can_grow(s, r);
    for (int kind = 0; kind < s->n_kinds; kind++)
        all = all && blocks_to_start(s, kind, (int)(r->prompt.n + r->output.n)) + s->blocks[kind].n / 100 <=
                         s->blocks[kind].n_free;
    return all;
}

/* Prompts are fed in smaller pieces if few blocks are left for windows. */
static bool windows_are_short(const struct scheduler *s)
{
    int kind = s->n_kinds - 1;
    return limits_window(&s->setup.limits, kind) > 0 && s->blocks[kind].n_free <= s->n_running + 1;
}

/* No starvation: every running sequence that could feed tokens does, unless the budget is used up; decoding sequences
 * always do; and no slot, budget and memory remain unused while a waiting request could use them. */
static void check_progress(struct schedule *run, const struct plan *p, uint64_t n_preempted)
{
    struct scheduler *s = &run->s;
    bool can_start = false;
    int n_blocked = 0, n_in_flight = 0;
    for (int i = 0; i < s->n_running; i++)
        n_in_flight += s->running[i]->n_in_flight;
    n_in_flight += s->drafter.n_under_way;
    if ((s->setup.drafts.propose != NULL || s->drafter.slot != NULL) && p->n_seqs == 0 && n_in_flight > 0)
        return; /* the steps in flight decide what may follow */
    /* Blocks reserved for a sequence that is then preempted are not given to others in the same step. */
    bool full = p->n_tokens == s->setup.limits.max_batch_tokens || s->stats.n_preemptions != n_preempted ||
                (s->bounded && s->work.tokens > 0);
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        int known = (int)(r->prompt.n + r->output.n);
        bool in_plan = false;
        for (int k = 0; k < p->n_seqs; k++)
            in_plan = in_plan || p->seq[k].slot == r->slot;
        if (r->n_fed < known && (int)r->output.n + r->n_in_flight < r->rules->max_tokens)
            assert_true(full || r->queue->as.left[ROOM_TOKENS] <= 0 || r->queue->as.client->left[ROOM_TOKENS] <= 0 ||
                        windows_are_short(s));
        if (!in_plan && r->n_fed >= known)
            assert_int_equal((int)r->output.n + r->n_in_flight, r->rules->max_tokens);
    }
    for (int i = 0; i < s->n_queues && !full && s->n_free_slots > 0; i++) {
        struct request *next = s->queue[i]->n_waiting > 0 ? s->queue[i]->waiting[0] : NULL;
        if (next == NULL || s->queue[i]->passed || next->n_in_flight > 0 || p->n_history > 0)
            continue; /* there may be no room for another history */
        can_start = can_start || has_room(s, next);
        n_blocked++;
    }
    /* The very first one may be the one that does not fit: no other overtakes it. */
    assert_false(can_start && n_blocked == 1);
}

/* ---- steps ---- */

void schedule_plan(struct schedule *run)
{
    uint64_t n_preempted = run->s.stats.n_preemptions;
    assert_true(run->n_steps < MAX_STEPS);
    plan_reset(&run->plan, (uint64_t)run->n_steps++);
    scheduler_plan(&run->s, &run->plan, run->now);
    struct paper *device = run->plan.model == PLAN_DRAFT_MODEL ? &run->draft_device : &run->device;
    if (device == &run->device && run->units != NULL)
        units_number(run->units, run->number, &run->plan);
    const char *wrong = paper_execute(device, &run->plan, &run->queue[run->n_queued++]);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    if (device == &run->draft_device) {
        schedule_check_memory(run);
        return;
    }
    check_starts(run, &run->plan);
    check_sequences(run, &run->plan);
    schedule_check_memory(run);
    check_progress(run, &run->plan, n_preempted);
}

void schedule_accept(struct schedule *run)
{
    struct err e = {0};
    struct step_result oldest = run->queue[0];
    run->queue[0] = run->queue[1];
    run->n_queued--;
    assert_int_equal(scheduler_accept(&run->s, &oldest, run->now, &e), 0);
    expect_none(&e);
    check_known_drafts(run);
    schedule_check_memory(run);
}

void schedule_step(struct schedule *run, int depth)
{
    run->now += 1;
    bool busy = scheduler_busy(&run->s);
    if (busy)
        schedule_plan(run);
    if (run->n_queued > depth || (!busy && run->n_queued > 0))
        schedule_accept(run);
}

void schedule_drain(struct schedule *run, int depth)
{
    while (scheduler_busy(&run->s) || run->n_queued > 0)
        schedule_step(run, depth);
    assert_int_equal(run->n_released, run->n);
    for (int kind = 0; kind < run->s.n_kinds; kind++)
        assert_int_equal(run->s.blocks[kind].n_free, run->s.blocks[kind].n);
    assert_int_equal(run->s.n_free_slots, run->s.setup.limits.max_seqs);
}
