/* coordinator/schedule/scheduler_plan.c - which tokens of which sequences a step feeds: scheduler_plan of scheduler.h. */
#include "coordinator/schedule/scheduler_parts.h"

/* How many tokens the sequence could feed now. The last one that it may get is never fed, and what a steered one gets is
 * not known before its owner says so. */
static int n_feedable(const struct request *r)
{
    if (r->steered)
        return n_known(r) - r->n_fed;
    if ((int)r->output.n + r->n_in_flight >= r->rules->max_tokens)
        return 0;
    return n_known(r) + r->n_in_flight - r->n_fed;
}

static void add_block(struct request *r, int block, struct plan *p)
{
    p->block[p->n_blocks++] = (struct plan_block){r->slot, r->n_blocks, block};
    r->block[r->n_blocks++] = block;
}

/* Of the next n tokens of r, as many as there are rows of logits for. The row of a token scores the one after it. */
static int n_scorable(const struct scheduler *s, const struct request *r, int n)
{
    int first = r->n_fed > r->n_scores_planned ? r->n_fed : r->n_scores_planned, end = first + s->score_rows;
    if (!wants_scores(r) || end >= (int)r->prompt.n - 1)
        return n;
    return n < end - r->n_fed ? n : end - r->n_fed;
}

/* Tokens of the prompt that the newest sequence of the plan, with the tokens up to r->n_fed, scores. */
static void add_scores(struct scheduler *s, struct request *r, struct plan *p)
{
    struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    struct plan_seq *seq = &p->seq[p->n_seqs - 1];
    int end = r->n_fed < (int)r->prompt.n - 1 ? r->n_fed : (int)r->prompt.n - 1, n = end - r->n_scores_planned;
    if (!wants_scores(r) || n <= 0)
        return;
    seq->n_logits = r->n_fed - r->n_scores_planned;
    p->score[p->n_scores++] =
        (struct plan_score){p->n_seqs - 1, n, r->n_fed < (int)r->prompt.n ? r->prompt.id[r->n_fed] : -1};
    f->scores[f->n_scores++] = (struct scores){r, r->n_scores_planned, n};
    r->n_scores_planned = end;
    r->n_score_flights++;
    s->score_rows -= n;
}

/* The next n tokens of a running sequence; if they are all that there are, another one is sampled. */
static void add_tokens(struct scheduler *s, struct request *r, int n, struct plan *p)
{
    int last = n == n_feedable(r);
    int32_t *token = p->token + p->n_tokens;
    p->seq[p->n_seqs++] = (struct plan_seq){r->slot, n, r->n_fed, (int)r->prompt.n, last, last};
    if (r->in_slot)
        *token = -1; /* the one sampled last, which never leaves the device */
    else
        copy_tokens(r, r->n_fed, n, token);
    p->n_tokens += n;
    r->n_fed += n;
    add_scores(s, r, p);
    r->in_slot = last && !r->steered;
    if (last) {
        struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
        f->request[f->n++] = r;
        r->n_in_flight++;
    }
    prefix_share(s, r);
}

/* A running sequence makes room. A steered one that has nothing to feed comes back when its owner goes on. */
static void preempt(struct scheduler *s, struct request *r)
{
    bool parked = r->steered && n_feedable(r) == 0;
    order_stop(s, r);
    r->n_preempted++;
    s->stats.n_preemptions++;
    if (parked) {
        r->state = REQUEST_PARKED;
        s->n_parked++;
    } else {
        order_wait(s, r);
    }
}

/* Steered sequences keep slots and blocks while they wait for their owner, who may wait for one in line: the last of those
 * that do not go before r makes room for it. False: there is none. */
static bool park_for(struct scheduler *s, const struct request *r)
{
    for (int i = s->n_running - 1; i >= 0 && !order_before(s->running[i], r); i--) {
        struct request *idle = s->running[i];
        if (idle->steered && n_feedable(idle) == 0 && idle->n_in_flight == 0) {
            preempt(s, idle);
            return true;
        }
    }
    return false;
}

/* Blocks for the next n tokens of r, at the cost of those behind it. False: r itself was the last and had to go. *n_decodes
 * counts sequences from r on that will feed one token. */
static bool grow(struct scheduler *s, struct request *r, int n, int *n_decodes, struct plan *p)
{
    while (r->n_blocks < blocks_for(r->n_fed + n)) {
        int block = blocks_take(&s->blocks);
        if (block >= 0) {
            add_block(r, block, p);
            continue;
        }
        struct request *last = s->running[s->n_running - 1];
        *n_decodes -= n_feedable(last) == 1;
        preempt(s, last);
        if (last == r)
            return false;
    }
    return true;
}

/* Those that run, in their order: a token each, and chunks that leave room for the tokens of those behind them. */
static void plan_running(struct scheduler *s, struct plan *p)
{
    int n_decodes = 0;
    for (int i = 0; i < s->n_running; i++)
        n_decodes += n_feedable(s->running[i]) == 1;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        int n = n_feedable(r), room = s->setup.limits.max_batch_tokens - p->n_tokens - n_decodes;
        if (n > 1)
            n = n < room ? n : room;
        n = n_scorable(s, r, n);
        if (n <= 0 || !grow(s, r, n, &n_decodes, p))
            continue;
        n_decodes -= n_feedable(r) == 1;
        add_tokens(s, r, n, p);
    }
}

/* Hold all blocks for what is known of r; false: there are too few, beside some for those that run to grow into. */
static bool reserve(struct scheduler *s, struct request *r)
{
    int n_free = s->blocks.n_free, spare = s->n_running > 0 ? s->blocks.n / 100 : 0;
    if (s->blocked == r && n_free < s->blocked_until && s->n_running > 0)
        return false;
    prefix_hold(s, r);
    int missing = blocks_for(n_known(r)) - r->n_blocks;
    s->blocked = NULL;
    if (s->blocks.n_free >= missing + spare)
        return true;
    s->blocked = r;
    s->blocked_until = n_free - s->blocks.n_free + missing + spare;
    while (r->n_blocks > 0)
        blocks_give_back(&s->blocks, r->block[--r->n_blocks]);
    return false;
}

static void note_start(struct scheduler *s, struct request *r)
{
    if (r->n_preempted > 0)
        return;
    r->times.scheduled = s->now;
    r->n_cached = r->n_fed;
    if (s->setup.prefix_caching && r->output.n == 0) { /* not a beam that goes on */
        s->stats.prefix_queries += (uint64_t)n_known(r);
        s->stats.prefix_hits += (uint64_t)r->n_fed;
    }
}

/* Penalties look at the tokens of the slot, also at those that are not fed. */
static bool needs_history(const struct request *r)
{
    const struct sampling *p = &r->rules->sampling;
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

static void add_history(const struct request *r, struct plan *p)
{
    struct plan_start *start = &p->start[p->n_starts - 1];
    start->n_history = r->n_fed;
    copy_tokens(r, 0, r->n_fed, p->history + p->n_history);
    p->n_history += r->n_fed;
}

static void start(struct scheduler *s, struct request *r, struct plan *p)
{
    order_leave_line(s, r);
    r->slot = s->free_slot[--s->n_free_slots];
    r->in_slot = false;
    r->n_fed = r->n_blocks * KV_BLOCK_TOKENS;
    p->start[p->n_starts] = (struct plan_start){.slot = r->slot, .sampling = r->rules->sampling};
    p->start[p->n_starts++].sampling.prompt_len = (int)r->prompt.n;
    if (needs_history(r))
        add_history(r, p);
    for (int i = 0; i < r->n_blocks; i++)
        p->block[p->n_blocks++] = (struct plan_block){r->slot, i, r->block[i]};
    while (r->n_blocks < blocks_for(n_known(r)))
        add_block(r, blocks_take(&s->blocks), p);
    order_run(s, r);
    note_start(s, r);
}

/* The next ones in line, as long as they fit. One whose last token has not been seen yet cannot be fed. */
static void plan_waiting(struct scheduler *s, struct plan *p)
{
    while (s->n_waiting > 0) {
        struct request *r = s->waiting[0];
        int room = s->setup.limits.max_batch_tokens - p->n_tokens;
        if (room <= 0 || r->n_in_flight > 0 || (wants_scores(r) && s->score_rows == 0))
            return;
        if (needs_history(r) && p->n_history > 0 && p->n_history + n_known(r) > s->setup.limits.max_len)
            return; /* there is room for one in every plan */
        if (s->n_free_slots == 0 || !reserve(s, r)) {
            if (!park_for(s, r))
                return;
            continue;
        }
        start(s, r, p);
        int n = n_feedable(r);
        add_tokens(s, r, n_scorable(s, r, n < room ? n : room), p);
    }
}

void scheduler_plan(struct scheduler *s, struct plan *p, double now)
{
    struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    uint64_t n_preemptions = s->stats.n_preemptions;
    f->step = p->step;
    f->n = f->n_scores = 0;
    s->score_rows = s->setup.limits.max_logit_rows - s->setup.limits.max_seqs;
    s->n_plans++;
    s->now = now;
    scheduler_expire(s, now);
    plan_running(s, p);
    if (s->stats.n_preemptions == n_preemptions)
        plan_waiting(s, p);
}
