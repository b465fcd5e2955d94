/* coordinator/schedule/scheduler_drafter.c - the steps of a draft model; see drafter.h and scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

#include <stdlib.h>

#define SHORT_GAP (DRAFTS_MAX + 1) /* lag in tokens of a sequence that was drafted in the last step */

int drafter_open(struct scheduler *s, struct err *e)
{
    const struct limits *l = &s->setup.limits;
    struct drafter *d = &s->drafter;
    if (l->draft_len == 0 || s->setup.guesses.most == 0)
        return 0;
    payoff_open(&d->payoff);
    d->slot = err_calloc(e, (size_t)l->max_seqs, sizeof *d->slot, "draft model");
    for (int i = 0; i < l->max_seqs && e->code == ERR_NONE; i++)
        d->slot[i].block = err_calloc(e, (size_t)blocks_for(l->draft_len), sizeof *d->slot[i].block, "draft model");
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++)
        d->flight[i].slot = err_calloc(e, (size_t)l->max_seqs, sizeof *d->flight[i].slot, "draft model");
    return e->code == ERR_NONE ? blocks_open(&d->blocks, l->n_blocks, e) : -1;
}

void drafter_close(struct scheduler *s)
{
    struct drafter *d = &s->drafter;
    for (int i = 0; d->slot != NULL && i < s->setup.limits.max_seqs; i++)
        free(d->slot[i].block);
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++)
        free(d->flight[i].slot);
    free(d->slot);
    blocks_close(&d->blocks);
    *d = (struct drafter){0};
}

/* ---- tokens ---- */

/* The number of r's tokens for the draft model: all except those that it is never fed. */
static int n_text(const struct scheduler *s, const struct request *r)
{
    return n_known(r) - s->setup.limits.draft_skip;
}

/* Copies n of these, from number `first` on. */
static void copy_text(const struct scheduler *s, const struct request *r, int first, int n, int32_t *to)
{
    copy_tokens(r, first + s->setup.limits.draft_skip, n, to);
}

/* Is r fed to the draft model? Not if its prompt is too long for drafts: its rotation might change, too. */
static bool is_followed(const struct scheduler *s, const struct request *r)
{
    return is_drafted(r) && (int)r->prompt.n < s->setup.limits.draft_len;
}

/* ---- blocks ---- */

/* The name before r's first block: for a head it contains the first token, which is not in the blocks. */
static uint64_t first_chain(const struct scheduler *s, const struct request *r)
{
    int32_t token = 0;
    if (s->setup.limits.draft_skip == 0)
        return 0;
    copy_tokens(r, 0, 1, &token);
    return UINT64_C(1) << 63 | (uint32_t)token;
}

/* draft_len is not above the length from which on the rotation changes. */
static bool is_shared(const struct scheduler *s, const struct request *r)
{
    return s->setup.prefix_caching && r->family == 0;
}

static void hold_prefix(struct scheduler *s, const struct request *r, struct drafted *x)
{
    struct drafter *d = &s->drafter;
    int n = is_shared(s, r) ? smaller(n_text(s, r) - 1, s->setup.limits.draft_len) / KV_BLOCK_TOKENS : 0;
    for (; x->n_blocks < n; x->n_blocks++) {
        int32_t token[KV_BLOCK_TOKENS];
        copy_text(s, r, x->n_blocks * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
        int block = blocks_find(&d->blocks, x->chain, token, s->n_plans);
        if (block < 0)
            break;
        blocks_hold(&d->blocks, block);
        x->chain = d->blocks.block[block].name;
        x->block[x->n_blocks] = block;
    }
    x->n_shared = x->n_blocks;
    x->n_fed = x->n_blocks * KV_BLOCK_TOKENS;
}

static void share_prefix(struct scheduler *s, const struct request *r, struct drafted *x)
{
    struct drafter *d = &s->drafter;
    for (; is_shared(s, r) && (x->n_shared + 1) * KV_BLOCK_TOKENS <= x->n_fed; x->n_shared++) {
        int32_t token[KV_BLOCK_TOKENS];
        copy_text(s, r, x->n_shared * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
        x->chain = blocks_share(&d->blocks, x->block[x->n_shared], x->chain, token, s->n_plans);
    }
}

/* Takes blocks for n tokens; returns for how many tokens they suffice. */
static int grow(struct drafter *d, struct drafted *x, int n)
{
    while (x->n_blocks < blocks_for(n)) {
        int block = blocks_take(&d->blocks);
        if (block < 0)
            return smaller(n, x->n_blocks * KV_BLOCK_TOKENS);
        x->block[x->n_blocks++] = block;
    }
    return n;
}

void drafter_begin(struct scheduler *s, const struct request *r)
{
    if (s->drafter.slot == NULL)
        return;
    struct drafted *x = &s->drafter.slot[r->slot];
    *x = (struct drafted){.block = x->block, .chain = first_chain(s, r)};
    if (is_followed(s, r))
        hold_prefix(s, r, x);
}

void drafter_end(struct scheduler *s, const struct request *r)
{
    if (s->drafter.slot == NULL)
        return;
    struct drafted *x = &s->drafter.slot[r->slot];
    while (x->n_blocks > 0)
        blocks_give_back(&s->drafter.blocks, x->block[--x->n_blocks]);
    *x = (struct drafted){.block = x->block};
}

/* ---- plans ---- */

/* The likeliest token by the request's own rules: biases, penalties, ends. */
static struct sampling draft_sampling(const struct scheduler *s, const struct request *r)
{
    struct sampling p = r->rules->sampling;
    p.temperature = 0;
    p.n_top = 0;
    p.prompt_len = (int)r->prompt.n - s->setup.limits.draft_skip;
    return p;
}

/* Unfed tokens are included for penalties as far as the plan has room. */
static void add_start(const struct scheduler *s, const struct drafted *x, const struct request *r, struct plan *p)
{
    struct plan_start *start = &p->start[p->n_starts++];
    bool told = needs_history(r) && p->n_history + x->n_fed <= s->setup.limits.draft_len;
    *start = (struct plan_start){r->slot, told ? x->n_fed : 0, draft_sampling(s, r)};
    copy_text(s, r, 0, start->n_history, p->history + p->n_history);
    p->n_history += start->n_history;
}

static void tell_start(const struct scheduler *s, struct drafted *x, const struct request *r, struct plan *p)
{
    if (!x->begun)
        add_start(s, x, r, p);
    x->begun = true;
    for (; x->n_told < x->n_blocks; x->n_told++)
        p->block[p->n_blocks++] = (struct plan_block){r->slot, x->n_told, x->block[x->n_told], KV_MAIN};
}

static void note_sampled(struct scheduler *s, const struct request *r, const struct plan *p)
{
    struct drafter_flight *f = &s->drafter.flight[p->step % SCHEDULER_FLIGHTS];
    f->slot[f->n++] = r->slot;
    s->drafter.slot[r->slot].n_planned++;
}

/* Feeds the next n known tokens; the very last one samples the first draft. */
static void feed_known(struct scheduler *s, const struct request *r, int n, struct plan *p)
{
    struct drafted *x = &s->drafter.slot[r->slot];
    bool last = x->n_wanted > 0 && x->n_fed + n == n_text(s, r);
    tell_start(s, x, r, p);
    p->seq[p->n_seqs++] = (struct plan_seq){r->slot, n, x->n_fed, (int)r->prompt.n, last, last, MASK_NONE};
    copy_text(s, r, x->n_fed, n, p->token + p->n_tokens);
    p->n_tokens += n;
    x->n_fed += n;
    share_prefix(s, r, x);
    if (last)
        note_sampled(s, r, p);
}

/* Feeds the draft sampled last, which never leaves the device. */
static void feed_draft(struct scheduler *s, const struct request *r, struct plan *p)
{
    struct drafted *x = &s->drafter.slot[r->slot];
    int pos = x->first + x->n_ahead++;
    tell_start(s, x, r, p);
    p->seq[p->n_seqs++] = (struct plan_seq){r->slot, 1, pos, (int)r->prompt.n, 1, 1, MASK_NONE};
    p->token[p->n_tokens++] = PLAN_SAMPLED;
    note_sampled(s, r, p);
}

/* The number of r's tokens to feed to the draft model now, as far as there are blocks: for drafts all known tokens,
 * otherwise those that the main model has been fed, which are also the only ones with states for a head. */
static int gap(struct scheduler *s, const struct request *r)
{
    struct drafted *x = &s->drafter.slot[r->slot];
    bool all = x->n_wanted > 0 && s->setup.limits.draft_skip == 0;
    int end = all ? n_text(s, r) : smaller(r->n_fed, n_text(s, r));
    return grow(&s->drafter, x, smaller(end, s->setup.limits.draft_len)) - x->n_fed;
}

/* Feeds known tokens: first of sequences that were drafted in the last step, then of prompts in the remaining room.
 */
static void plan_known(struct scheduler *s, struct plan *p)
{
    s->drafter.measured = true;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->n_running; i++) {
            const struct request *r = s->running[i];
            const struct drafted *x = &s->drafter.slot[r->slot];
            int n = is_followed(s, r) ? gap(s, r) : 0, room = s->setup.limits.max_batch_tokens - p->n_tokens;
            bool is_short = x->n_wanted > 0 && n <= SHORT_GAP;
            if (n <= 0 || room <= 0 || is_short != (pass == 0))
                continue;
            feed_known(s, r, smaller(n, room), p);
            s->drafter.measured = s->drafter.measured && is_short;
        }
}

static void plan_drafts(struct scheduler *s, struct plan *p)
{
    for (int i = 0; i < s->n_running; i++) {
        const struct drafted *x = &s->drafter.slot[s->running[i]->slot];
        if (x->n_planned == s->drafter.round && x->n_wanted > x->n_planned)
            feed_draft(s, s->running[i], p);
    }
}

/* ---- which sequences, and how many drafts ---- */

/* Accepted drafts have been fed already (a head is fed them again, since their states were different). Then clears the
 * last drafts. */
static void settle(const struct scheduler *s, const struct request *r, struct drafted *x)
{
    if (s->setup.limits.draft_skip > 0)
        x->n_ahead = 0;
    for (int32_t token; x->n_ahead > 0 && x->n_fed < n_text(s, r) - 1; x->n_ahead--, x->n_fed++) {
        copy_text(s, r, x->n_fed, 1, &token);
        if (token != x->draft[x->n_fed - x->first])
            break;
    }
    x->n_ahead = 0;
    x->first = n_text(s, r);
}

static bool can_be_drafted(const struct scheduler *s, const struct request *r)
{
    return is_followed(s, r) && n_feedable(r) == 1 && r->n_in_flight == 0 && r->output.n > 0 && n_useful(r) > 0 &&
           n_text(s, r) < s->setup.limits.draft_len;
}

static int choose_most(struct scheduler *s)
{
    int n_decodes = 0, n_drafted = 0, most = s->setup.guesses.most;
    for (int i = 0; i < s->n_running; i++) {
        n_decodes += n_feedable(s->running[i]) == 1;
        n_drafted += can_be_drafted(s, s->running[i]);
    }
    if (s->setup.guesses.always)
        return most;
    if (s->drafter.payoff.rest > 1) { /* no result is awaited meanwhile, so perhaps no sequence could be drafted */
        if (n_decodes > 0)
            payoff_pass(&s->drafter.payoff);
        return 0;
    }
    if (n_drafted == 0)
        return s->drafter.payoff.rest > 0 ? 0 : most;
    return payoff_choose(&s->drafter.payoff, &s->costs, n_decodes, n_drafted, most);
}

/* Returns the largest number of drafts of a sequence. Sequences get the step's room for drafts in their order. */
static int want_drafts(struct scheduler *s, int most)
{
    const struct limits *l = &s->setup.limits;
    int left = smaller(l->max_drafts, (l->max_batch_tokens - s->n_running) / 2), largest = 0;
    for (int i = 0; i < s->n_running; i++) {
        const struct request *r = s->running[i];
        struct drafted *x = &s->drafter.slot[r->slot];
        if (!is_followed(s, r))
            continue;
        settle(s, r, x);
        if (!can_be_drafted(s, r))
            continue;
        int n = smaller(smaller(n_useful(r), most), smaller(left, l->draft_len - n_text(s, r)));
        n = n > 0 ? grow(&s->drafter, x, n_text(s, r) + n - 1) - n_text(s, r) + 1 : 0;
        x->n_wanted = n > 0 ? n : 0;
        left -= x->n_wanted;
        largest = x->n_wanted > largest ? x->n_wanted : largest;
    }
    return largest;
}

/* Is a result under way on which the next drafts depend? While drafting rests none is awaited. */
static bool awaits_tokens(const struct scheduler *s)
{
    bool rests = !s->setup.guesses.always && s->drafter.payoff.rest > 1;
    for (int i = 0; i < s->n_running; i++) {
        const struct request *r = s->running[i];
        if (r->n_in_flight > 0 && (r->n_drafts > 0 || (!rests && is_drafted(r))))
            return true;
    }
    return false;
}

static void begin_rounds(struct scheduler *s)
{
    struct drafter *d = &s->drafter;
    int most = choose_most(s);
    for (int i = 0; i < s->n_running; i++) {
        struct drafted *x = &d->slot[s->running[i]->slot];
        x->n_wanted = x->n_planned = x->n_made = 0; /* drafts for another step, if it had no room for them */
        x->handed_out = false;
    }
    d->round = 0;
    d->n_rounds = most > 0 ? want_drafts(s, most) : 0;
    if (most > 0 && d->n_rounds == 0)
        d->n_rounds = 1; /* prompts */
    d->began = s->now;
    d->drafting = d->n_rounds > 0;
}

/* The next round that has any sequence. */
static void plan_round(struct scheduler *s, struct plan *p)
{
    struct drafter *d = &s->drafter;
    for (; d->round < d->n_rounds && p->n_seqs == 0; d->round++) {
        if (d->round == 0)
            plan_known(s, p);
        else
            plan_drafts(s, p);
    }
    if (p->n_seqs == 0)
        return;
    p->model = PLAN_DRAFT_MODEL;
    s->flight[p->step % SCHEDULER_FLIGHTS].of_draft_model = true;
    s->flight[p->step % SCHEDULER_FLIGHTS].n_rows = d->flight[p->step % SCHEDULER_FLIGHTS].n;
    d->n_under_way += d->flight[p->step % SCHEDULER_FLIGHTS].n > 0;
}

/* May the main model's step be planned before the results of the last round? It then takes these drafts from the
 * device, which is impossible if a form has to check them first, or if some devices do not have them. */
static bool can_follow(const struct scheduler *s)
{
    const struct drafter *d = &s->drafter;
    bool can = d->n_under_way <= (s->setup.limits.draft_ranks == 0);
    for (int i = 0; i < s->n_running && can && d->n_under_way > 0; i++)
        can = s->running[i]->form == NULL || d->slot[s->running[i]->slot].n_wanted == 0;
    return can;
}

bool drafter_plan(struct scheduler *s, struct plan *p)
{
    struct drafter *d = &s->drafter;
    d->flight[p->step % SCHEDULER_FLIGHTS].n = 0;
    if (!d->drafting && (d->n_under_way > 0 || awaits_tokens(s)))
        return true;
    if (!d->drafting)
        begin_rounds(s);
    plan_round(s, p);
    if (p->n_seqs > 0 || !can_follow(s))
        return true;
    d->drafting = false;
    return false;
}

/* The step under way may have been planned with this draft, and then has its position. */
static void tell_draft(struct scheduler *s, int slot, int position, int32_t token)
{
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        if (r->slot == slot && position < r->n_drafts && r->draft[position] == PLAN_DRAFTED)
            r->draft[position] = token;
    }
}

void drafter_accept(struct scheduler *s, const struct step_result *result)
{
    struct drafter *d = &s->drafter;
    const struct drafter_flight *f = &d->flight[result->step % SCHEDULER_FLIGHTS];
    for (int i = 0; i < f->n; i++) {
        struct drafted *x = &d->slot[f->slot[i]];
        if (x->n_made == x->n_planned)
            continue; /* the sequence has left the slot */
        x->draft[x->n_made] = result->sampled[i].token;
        tell_draft(s, f->slot[i], x->n_made, x->draft[x->n_made]);
        x->n_made++;
    }
    d->n_under_way -= f->n > 0;
    if (f->n > 0 && d->n_under_way == 0 && d->round == d->n_rounds && d->measured)
        costs_add(&d->payoff.rounds, d->n_rounds, s->now - d->began);
}

int drafter_take(struct scheduler *s, const struct request *r, int n, int32_t *token)
{
    struct drafted *x = &s->drafter.slot[r->slot];
    n = x->handed_out ? 0 : smaller(n, x->n_planned);
    memcpy(token, x->draft, (size_t)n * sizeof *token);
    if (n > x->n_made) /* by one: see can_follow */
        token[x->n_made] = PLAN_DRAFTED;
    x->handed_out = true;
    return n;
}
