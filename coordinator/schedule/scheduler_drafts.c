/* coordinator/schedule/scheduler_drafts.c - tokens that are guessed, and verified by the step that feeds them; see
 * scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

#define GUESS_TOKENS 4096 /* tokens that a plan reads into guesses: a fraction of a millisecond */
#define LEARN_TOKENS 1024 /* likewise of finished answers */

/* The number of r's blocks, including that of its next token. */
static int n_own(const struct request *r, int kind)
{
    int end = r->held[kind].end, next = blocks_for(r->n_fed + 1);
    return next > end ? next : end;
}

/* The number of n drafts for which there is spare memory: in r's blocks and in unneeded further ones of each kind,
 * which it takes. */
static int n_stored(const struct scheduler *s, const struct request *r, int n, int *spare)
{
    for (int kind = 0; kind < s->n_kinds; kind++)
        n = smaller(n, (n_own(r, kind) + (spare[kind] > 0 ? spare[kind] : 0)) * KV_BLOCK_TOKENS - r->n_fed - 1);
    for (int kind = 0; kind < s->n_kinds; kind++) {
        int more = blocks_for(r->n_fed + 1 + n) - n_own(r, kind);
        spare[kind] -= more > 0 ? more : 0;
    }
    return n;
}

/* Guesses see the prediction as an earlier continuation of the prompt's end: this end, the prediction, a border. */
static int n_prompt_end(const struct scheduler *s, const struct request *r)
{
    return smaller(s->setup.guesses.longest, (int)r->prompt.n);
}

/* The number of tokens that guesses read before the prompt. */
static int n_foreign(const struct scheduler *s, const struct request *r)
{
    bool some = r->prediction != NULL && r->prediction->n > 0;
    return some ? n_prompt_end(s, r) + (int)r->prediction->n + 1 : 0;
}

/* The i-th of these. */
static int32_t foreign_token(const struct scheduler *s, const struct request *r, int i)
{
    int n_end = n_prompt_end(s, r), at = i - n_end;
    if (at < 0)
        return r->prompt.id[(int)r->prompt.n - n_end + i];
    return at < (int)r->prediction->n ? r->prediction->id[at] : -1;
}

/* Without memory for guesses a sequence has none. */
static bool has_guesses(const struct scheduler *s, struct request *r)
{
    struct err e = {0};
    if (r->guesses == NULL && r->n_guessed_from == 0)
        (void)guesses_open(&r->guesses, &s->setup.guesses,
                           (int64_t)n_foreign(s, r) + (int64_t)r->prompt.n + r->rules->max_tokens, s->answers, &e);
    if (r->guesses == NULL)
        r->n_guessed_from = -1;
    return r->guesses != NULL;
}

/* Reads prediction, prompt and output into the guesses, a limited number of tokens per plan. */
static bool knows_all(struct scheduler *s, struct request *r)
{
    int n_before = n_foreign(s, r), n = n_before + n_known(r);
    for (; r->n_guessed_from < n && s->guess_tokens > 0; r->n_guessed_from++, s->guess_tokens--) {
        int32_t token;
        int at = r->n_guessed_from - n_before;
        if (at < 0)
            token = foreign_token(s, r, r->n_guessed_from);
        else
            copy_tokens(r, at, 1, &token);
        guesses_add(r->guesses, token, at >= (int)r->prompt.n);
    }
    return r->n_guessed_from == n;
}

static int make_drafts(struct scheduler *s, struct request *r, int n)
{
    const struct draft_source *source = &s->setup.drafts;
    if (source->propose != NULL)
        return source->propose(source->context, r, n, r->draft);
    if (s->drafter.slot != NULL)
        return drafter_take(s, r, n, r->draft);
    return has_guesses(s, r) && knows_all(s, r) ? guesses_make(r->guesses, n, r->draft) : 0;
}

static int propose(struct scheduler *s, struct request *r, int n)
{
    n = smaller(n, smaller(s->setup.guesses.most, DRAFTS_MAX));
    if (n <= 0)
        return 0;
    n = make_drafts(s, r, n);
    return r->form != NULL ? form_allows(r, n) : n;
}

/* The expected number of tokens of a step for r with n drafts. */
static double expect(const struct request *r, int n)
{
    double sum = 1, chance = 1;
    for (int i = 0; i < n; i++) {
        chance *= r->guesses != NULL ? guesses_chance(r->guesses, i) : 1;
        sum += chance;
    }
    return sum;
}

/* The expected tokens per second of a step of n_decodes sequences with at most `most` drafts each. */
static double speed(const struct scheduler *s, struct request *const *list, int n, int n_decodes, int most)
{
    double tokens = n_decodes;
    int rows = n_decodes;
    for (int i = 0; i < n; i++) {
        int n_drafts = smaller(list[i]->n_drafts, most);
        rows += n_drafts;
        tokens += n_drafts > 0 ? expect(list[i], n_drafts) - 1 : 0;
    }
    return tokens / costs_seconds(&s->costs, rows);
}

/* The number of drafts per sequence with which the next step gives most tokens per second; 0 if drafts do not pay.
 * Their cost is judged relative to a step without drafts. */
static int choose_most(const struct scheduler *s, struct request *const *list, int n, int n_decodes)
{
    int best = 0;
    if (s->setup.guesses.always || s->setup.drafts.propose != NULL || s->drafter.slot != NULL)
        return DRAFTS_MAX;
    if (!costs_known(&s->costs, n_decodes))
        return 0;
    double fastest = speed(s, list, n, n_decodes, 0);
    for (int most = 1; most <= s->setup.guesses.most; most++) {
        double now = speed(s, list, n, n_decodes, most);
        if (now > fastest) {
            fastest = now;
            best = most;
        }
    }
    return best;
}

static void keep_most(struct request *const *list, int n, int most)
{
    for (int i = 0; i < n; i++)
        list[i]->n_drafts = smaller(list[i]->n_drafts, most);
}

/* Decoding sequences come first, then drafts, which may use half of the remaining tokens, so that prompts advance.
 * Every running sequence may need a block for its next token. */
static int divide_room(struct scheduler *s, int n_decodes)
{
    const struct limits *l = &s->setup.limits;
    int left = smaller(l->max_drafts, (l->max_batch_tokens - n_decodes) / 2), sum = 0;
    int spare[KV_KINDS];
    for (int kind = 0; kind < s->n_kinds; kind++)
        spare[kind] = s->blocks[kind].n_free - s->n_running - s->blocks[kind].n / 100;
    for (int i = 0; i < s->n_turns; i++) {
        struct request *r = s->turn[i];
        int n = smaller(r->n_drafts, left);
        r->n_drafts = n > 0 ? n_stored(s, r, n, spare) : 0;
        left -= r->n_drafts;
        sum += r->n_drafts;
    }
    return sum;
}

static bool makes_drafts(const struct scheduler *s)
{
    return scheduler_draft_places(s) > 0;
}

int drafts_plan(struct scheduler *s, int n_decodes)
{
    bool any = false;
    if (!makes_drafts(s))
        return 0;
    for (int i = 0; i < s->n_turns; i++) {
        struct request *r = s->turn[i];
        bool now = is_drafted(r) && n_feedable(r) == 1 && r->n_in_flight == 0 && r->output.n > 0;
        r->barred = 0;
        r->n_drafts = now ? propose(s, r, n_useful(r)) : 0;
        any = any || r->n_drafts > 0;
    }
    if (!any)
        return 0;
    keep_most(s->turn, s->n_turns, choose_most(s, s->turn, s->n_turns, n_decodes));
    return divide_room(s, n_decodes);
}

bool drafts_wait(struct scheduler *s)
{
    bool any = false;
    s->guess_tokens = GUESS_TOKENS;
    if (!makes_drafts(s))
        return false;
    if (s->answers != NULL)
        corpus_learn(s->answers, LEARN_TOKENS);
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->n_in_flight > 0 && s->running[i]->n_drafts > 0)
            return true;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        int n = n_awaited(r) > 0 && is_drafted(r) && r->output.n > 0 ? propose(s, r, n_useful(r)) : 0;
        r->n_drafts = n > 1 ? n - 1 : 0; /* the first one is under way */
        any = any || r->n_drafts > 0;
    }
    any = any && choose_most(s, s->running, s->n_running, s->n_running) > 0;
    keep_most(s->running, s->n_running, 0);
    return any;
}

void drafts_measure(struct scheduler *s, const struct flight *f, double seconds)
{
    if (f->n_tokens > 0)
        costs_add(&s->costs, f->n_tokens, seconds);
}

int drafts_settle(struct scheduler *s, struct request *r, const struct sampled *sampled, int n)
{
    int n_right = 1, n_barred = r->barred == n;
    while (n_right < n && sampled[n_right - 1].token == r->draft[n_right - 1])
        n_right++;
    if (s->drafter.slot != NULL)
        payoff_judge(&s->drafter.payoff, n - 1 + n_barred, n_right - 1);
    if (n == 1)
        return 1;
    r->n_fed -= n - n_right;
    r->n_drafts = 0;
    s->stats.n_drafts++;
    s->stats.n_draft_tokens += (uint64_t)n - 1;
    r->drafts.n_steps++;
    r->drafts.n_tokens += n - 1;
    return n_right;
}
