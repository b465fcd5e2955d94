/* coordinator/schedule/scheduler_plan.c - chooses the sequences and tokens that a step feeds: scheduler_plan of
 * scheduler.h. */
#include "coordinator/schedule/scheduler_parts.h"

/* Shared prefixes are worth a search in steps with at least SHARED_TOKENS single tokens, of which SHARED_HOLDERS share
 * SHARED_BLOCKS blocks (256 tokens): smaller steps are recorded graphs, and spend most of their time on weights. */
#define SHARED_TOKENS  17
#define SHARED_BLOCKS  16
#define SHARED_HOLDERS 4

/* The number of the next n tokens of r for which there are rows of logits. The row of a token scores the one after
 * it. */
static int n_scorable(const struct scheduler *s, const struct request *r, int n)
{
    int left = turns_left(r, ROOM_ROWS), rows = left < s->score_rows ? left : s->score_rows;
    int first = r->n_fed > r->n_scores_planned ? r->n_fed : r->n_scores_planned, end = first + rows;
    if (!wants_scores(r) || end >= (int)r->prompt.n - 1)
        return n;
    return n < end - r->n_fed ? n : end - r->n_fed;
}

/* Enters the scores of prompt tokens for the plan's newest sequence, which feeds tokens up to r->n_fed. */
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
    turns_use(r, ROOM_ROWS, n);
    s->score_rows -= n;
}

/* Enters the samples of the plan's newest sequence. */
static void note_sampled(struct scheduler *s, struct request *r, int n_rows, const struct plan *p)
{
    struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    f->rows[f->n] = n_rows;
    f->request[f->n++] = r;
    f->n_rows += n_rows;
    r->n_in_flight++;
}

/* Feeds the next n tokens of a running sequence; if these are its last known ones, its drafts follow, and tokens are
 * sampled. */
static void add_tokens(struct scheduler *s, struct request *r, int n, struct plan *p)
{
    int last = n == n_feedable(r);
    enum plan_mask masked = last && r->form != NULL ? form_add_masks(s, r, p) : MASK_NONE;
    int n_drafts = last ? r->n_drafts : 0, n_rows = last + n_drafts;
    int32_t *token = p->token + p->n_tokens;
    p->seq[p->n_seqs++] = (struct plan_seq){r->slot, n + n_drafts, r->n_fed, (int)r->prompt.n, n_rows, n_rows, masked};
    if (r->in_slot)
        *token = PLAN_SAMPLED;
    else
        copy_tokens(r, r->n_fed, n, token);
    memcpy(token + n, r->draft, (size_t)n_drafts * sizeof *token);
    p->n_tokens += n + n_drafts;
    r->n_fed += n + n_drafts;
    add_scores(s, r, p);
    r->in_slot = last && n_drafts == 0 && !r->steered;
    if (last)
        note_sampled(s, r, n_rows, p);
    prefix_share(s, r);
}

void scheduler_preempt(struct scheduler *s, struct request *r)
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

/* Steered sequences keep slots and blocks while they wait for their owner, which may wait for a queued one: the last of
 * those that do not precede r is preempted. False: there is none. */
static bool park_for(struct scheduler *s, const struct request *r)
{
    for (int i = s->n_running - 1; i >= 0 && !order_before(s->running[i], r); i--) {
        struct request *idle = s->running[i];
        if (idle->steered && n_feedable(idle) == 0 && idle->n_in_flight == 0) {
            scheduler_preempt(s, idle);
            return true;
        }
    }
    return false;
}

/* The tokens of a plan that are reserved for a sequence: its single next one and the drafts after it. */
static int n_kept(const struct request *r)
{
    return n_feedable(r) == 1 ? 1 + r->n_drafts : 0;
}

static bool grow_kind(struct scheduler *s, struct request *r, int kind, int n, int *kept, struct plan *p)
{
    while (r->held[kind].end < blocks_for(r->n_fed + n)) {
        int block = blocks_take(&s->blocks[kind]);
        if (block >= 0) {
            kv_add(r, kind, block, p);
            continue;
        }
        struct request *last = s->turn[--s->n_turns];
        *kept -= n_kept(last);
        scheduler_preempt(s, last);
        if (last == r)
            return false;
    }
    return true;
}

/* Takes blocks for the next n tokens of r, preempting sequences after it if necessary. False: r itself was the last and
 * was preempted. *kept counts the reserved tokens of sequences from r on. */
static bool grow(struct scheduler *s, struct request *r, int n, int *kept, struct plan *p)
{
    for (int kind = 0; kind < s->n_kinds; kind++)
        if (!grow_kind(s, r, kind, n, kept, p))
            return false;
    return true;
}

/* The number of n tokens of a prompt for which there is room, in the step and its time, in its client's and party's
 * parts and in windows. */
static int n_fitting(struct scheduler *s, const struct request *r, int n, int room)
{
    int left = turns_left(r, ROOM_TOKENS), most = left < room ? left : room;
    return n_scorable(s, r, kv_placed(s, r, bound_fit(s, r->n_fed, n < most ? n : most)));
}

/* Counts its next n tokens as planned. */
static void note_prompt(struct scheduler *s, struct request *r, int n)
{
    turns_use(r, ROOM_TOKENS, n);
    bound_note(s, r->n_fed, n);
}

/* Sequences with several tokens come after those that feed one, which a step computes like those of a decode step
 * (rank/step/submit.c, count_alone). A scored prompt stays in its place, since the next one's room depends on it. */
static bool comes_behind(const struct request *r, int n)
{
    return n + r->n_drafts > 1 && !wants_scores(r);
}

static void add_behind(struct scheduler *s, struct plan *p)
{
    for (int i = 0; i < s->n_turns; i++)
        if (s->turn[i]->n_behind > 0)
            add_tokens(s, s->turn[i], s->turn[i]->n_behind, p);
}

/* Running sequences in their order: one token each, and chunks that leave room for the tokens of later sequences. */
static void plan_running(struct scheduler *s, int kept, struct plan *p)
{
    int n_behind = 0;
    for (int i = 0; i < s->n_turns; i++) {
        struct request *r = s->turn[i];
        int n = n_feedable(r), mine = n_kept(r);
        int room = s->setup.limits.max_batch_tokens - p->n_tokens - n_behind - kept;
        bool decodes = n == 1;
        n = decodes ? n_scorable(s, r, n) : n_fitting(s, r, n, room);
        r->n_behind = 0;
        if (n <= 0 || !grow(s, r, decodes ? mine : n, &kept, p))
            continue;
        kept -= mine;
        if (!decodes)
            note_prompt(s, r, n);
        if (comes_behind(r, n))
            r->n_behind = n;
        else
            add_tokens(s, r, n, p);
        n_behind += r->n_behind > 0 ? n + (decodes ? r->n_drafts : 0) : 0;
    }
    add_behind(s, p);
}

/* Are this many blocks of each kind free, or can they be freed? Memory of one kind may come from the other. */
static bool have_blocks(struct scheduler *s, const int *n)
{
    bool all = true;
    for (int kind = 0; kind < s->n_kinds && all; kind++)
        all = blocks_have(&s->blocks[kind], n[kind]);
    for (int kind = 0; kind < s->n_kinds; kind++)
        all = all && s->blocks[kind].n_free >= n[kind];
    return all;
}

/* The blocks to be left for the growth of sequences if r starts beside others; `least`: those that are left in any
 * case. Where models share memory nobody knows how much there will be. Sequences of clients that run more give way to
 * r. A steered sequence with output takes the place of another one, which waits for it. */
static int n_spared(struct scheduler *s, const struct request *r, int kind, int least)
{
    bool waits =
        s->setup.foresees && s->setup.source[kind].more == NULL && r != s->favoured && !(r->steered && r->output.n > 0);
    int growth = waits ? growth_needed(s, r, kind) : 0;
    return growth > least ? growth : least;
}

/* Are these blocks free, which r needs itself, and others for growth? until: the required number. */
static bool have_room(struct scheduler *s, const struct request *r, const int *needed, int *until)
{
    for (int kind = 0; kind < s->n_kinds; kind++)
        until[kind] = needed[kind] + (s->n_running > 0 ? s->blocks[kind].n / 100 : 0);
    if (!have_blocks(s, until))
        return false;
    if (s->n_running == 0)
        return true;
    for (int kind = 0; kind < s->n_kinds; kind++)
        until[kind] = needed[kind] + n_spared(s, r, kind, until[kind] - needed[kind]);
    return have_blocks(s, until);
}

/* Has r found blocks that a single other sequence holds? */
static bool has_second_holders(const struct scheduler *s, const struct request *r)
{
    const struct held_blocks *held = &r->held[KV_MAIN];
    for (int i = held->begin; i < held->end; i++)
        if (s->blocks[KV_MAIN].block[held->block[i]].n_holders == 2)
            return true;
    return false;
}

bool scheduler_reserve(struct scheduler *s, struct request *r)
{
    int n_free[KV_KINDS] = {0}, missing[KV_KINDS] = {0}, found[KV_KINDS] = {0};
    if (s->blocked == r && s->n_running > 0 && !have_room(s, r, s->blocked_by, s->blocked_until))
        return false;
    for (int kind = 0; kind < s->n_kinds; kind++)
        n_free[kind] = s->blocks[kind].n_free;
    prefix_hold(s, r);
    for (int kind = 0; kind < s->n_kinds; kind++) {
        found[kind] = n_free[kind] - s->blocks[kind].n_free;
        missing[kind] = kv_missing(s, r, kind);
        s->blocked_by[kind] = found[kind] + missing[kind];
    }
    if (has_second_holders(s, r))
        growth_forget(s);
    bool fits = have_room(s, r, missing, s->blocked_until);
    for (int kind = 0; kind < s->n_kinds; kind++)
        s->blocked_until[kind] += found[kind];
    s->blocked = fits ? NULL : r;
    if (!fits)
        kv_give_back(s, r);
    return fits;
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

static void add_history(const struct request *r, struct plan *p)
{
    struct plan_start *start = &p->start[p->n_starts - 1];
    start->n_history = r->n_fed;
    copy_tokens(r, 0, r->n_fed, p->history + p->n_history);
    p->n_history += r->n_fed;
}

static void start_request(struct scheduler *s, struct request *r, struct plan *p)
{
    order_leave_queue(s, r);
    r->slot = s->free_slot[--s->n_free_slots];
    r->in_slot = false;
    r->n_drafts = 0;
    r->n_fed = r->n_shared * KV_BLOCK_TOKENS;
    p->start[p->n_starts] = (struct plan_start){.slot = r->slot, .sampling = r->rules->sampling};
    p->start[p->n_starts].sampling.masked = r->form != NULL;
    p->start[p->n_starts++].sampling.prompt_len = (int)r->prompt.n;
    if (needs_history(r))
        add_history(r, p);
    for (int kind = 0; kind < s->n_kinds; kind++)
        for (int i = r->held[kind].begin; i < r->held[kind].end; i++)
            p->block[p->n_blocks++] = (struct plan_block){r->slot, i, r->held[kind].block[i], kind};
    for (int kind = 0; kind < s->n_kinds; kind++)
        for (int i = kv_missing(s, r, kind); i > 0; i--)
            kv_add(r, kind, blocks_take(&s->blocks[kind]), p);
    order_run(s, r);
    growth_add(s, r);
    drafter_begin(s, r);
    note_start(s, r);
}

/* A sequence whose last token is not known yet cannot be fed. */
static bool can_be_fed(const struct scheduler *s, const struct request *r)
{
    return r->n_in_flight == 0 && turns_left(r, ROOM_TOKENS) > 0 &&
           !(wants_scores(r) && (turns_left(r, ROOM_ROWS) <= 0 || s->score_rows == 0));
}

/* There is no slot for the next sequences nor for later ones, but sequences of one owner may wait for each other. */
static bool park_for_any(struct scheduler *s)
{
    for (int i = 0; i < s->n_queues; i++)
        if (s->queue[i]->n_waiting > 0 && !s->queue[i]->passed && park_for(s, s->queue[i]->waiting[0]))
            return true;
    return false;
}

/* Starts the next requests of the queues as long as they fit. */
static void plan_waiting(struct scheduler *s, struct plan *p)
{
    struct request *r;
    growth_forget(s);
    for (int room; (r = order_next(s)) != NULL && (room = s->setup.limits.max_batch_tokens - p->n_tokens) > 0 &&
                   bound_has_room(s);) {
        if (!can_be_fed(s, r)) {
            r->queue->passed = true;
            continue;
        }
        if (needs_history(r) && p->n_history > 0 && p->n_history + n_known(r) > s->setup.limits.max_len)
            return; /* there is room for one in every plan */
        if (s->n_free_slots == 0 || !scheduler_reserve(s, r)) {
            if (!park_for_any(s))
                return;
            continue;
        }
        start_request(s, r, p);
        int n = n_fitting(s, r, n_feedable(r), room);
        note_prompt(s, r, n);
        kv_place(s, r, n, p);
        add_tokens(s, r, n, p);
    }
}

/* The plan is still empty, so a preempted sequence has no tokens in it. Returns the number of tokens kept for
 * sequences that feed one, and its drafts. */
static int begin_turns(struct scheduler *s)
{
    const struct limits *l = &s->setup.limits;
    int n_decodes = 0;
    for (int i = 0; i < s->n_queues; i++)
        s->queue[i]->passed = false;
    s->favoured = NULL;
    order_turns(s);
    turns_give_way(s);
    for (int i = 0; i < s->n_turns; i++)
        n_decodes += n_feedable(s->turn[i]) == 1;
    int kept = n_decodes + drafts_plan(s, n_decodes);
    s->score_rows = l->max_logit_rows - l->max_seqs - l->max_drafts;
    bound_begin(s, kept);
    turns_share(s, bound_part(s, l->max_batch_tokens - kept), s->score_rows);
    return kept;
}

/* Do many of the sequences that feed one token share their first blocks? Shared blocks have several holders. */
static bool is_shared(const struct scheduler *s, const struct request *r)
{
    const struct held_blocks *held = &r->held[KV_MAIN];
    if (held->begin > 0 || held->end < SHARED_BLOCKS)
        return false;
    return s->blocks[KV_MAIN].block[held->block[SHARED_BLOCKS - 1]].n_holders >= SHARED_HOLDERS;
}

static bool many_share(const struct scheduler *s, const struct flight *f, const struct plan *p)
{
    int n_single = 0, n_shared = 0;
    while (n_single < p->n_seqs && p->seq[n_single].n_tokens == 1)
        n_single++;
    for (int i = 0; i < f->n && n_single >= SHARED_TOKENS && n_shared < SHARED_HOLDERS; i++)
        n_shared += is_shared(s, f->request[i]);
    return n_shared >= SHARED_HOLDERS;
}

void scheduler_plan(struct scheduler *s, struct plan *p, double now)
{
    struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    f->step = p->step;
    f->planned = now;
    f->n_tokens = 0;
    f->of_draft_model = false;
    f->n = f->n_rows = f->n_scores = 0;
    f->work = (struct step_work){0};
    s->n_plans++;
    s->now = now;
    scheduler_expire(s, now);
    if (s->drafter.slot != NULL ? drafter_plan(s, p) : drafts_wait(s))
        return;
    kv_pass(s);
    int kept = begin_turns(s);
    uint64_t n_preemptions = s->stats.n_preemptions;
    plan_running(s, kept, p);
    if (s->stats.n_preemptions == n_preemptions)
        plan_waiting(s, p);
    f->n_tokens = p->n_tokens == f->n_rows ? p->n_tokens : 0;
    p->shares = many_share(s, f, p);
    bound_end(s, f, p);
}
