/* coordinator/schedule/scheduler_drafts.c - tokens that are guessed, and verified by the step that feeds them; see
 * scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Can r have drafts at all? Its owner or its form decides what follows in the other cases. */
static bool is_drafted(const struct request *r)
{
    return !r->steered && r->form == NULL;
}

/* Drafts whose sampled token would still be taken, behind the token that is sampled first. */
static int n_useful(const struct request *r)
{
    return r->rules->max_tokens - (int)r->output.n - 1;
}

/* The number of n drafts for which there is memory that nobody else needs: in r's blocks and *spare further ones, which
 * it takes. */
static int n_stored(const struct request *r, int n, int *spare)
{
    int own = blocks_for(r->n_fed + 1) > r->n_blocks ? blocks_for(r->n_fed + 1) : r->n_blocks;
    int most = (own + (*spare > 0 ? *spare : 0)) * KV_BLOCK_TOKENS - r->n_fed - 1;
    n = smaller(n, most);
    int more = blocks_for(r->n_fed + 1 + n) - own;
    *spare -= more > 0 ? more : 0;
    return n;
}

static int propose(const struct scheduler *s, struct request *r, int n, int32_t *token)
{
    const struct draft_source *source = &s->setup.drafts;
    n = smaller(n, smaller(source->most, DRAFTS_MAX));
    return n > 0 ? source->propose(source->context, r, n, token) : 0;
}

/* Sequences that decode come first, then drafts, for which half of what is left may be used, so that prompts go on.
 * Every running sequence may need a block for its next token. */
int drafts_plan(struct scheduler *s, int n_decodes)
{
    const struct limits *l = &s->setup.limits;
    int left = smaller(l->max_drafts, (l->max_batch_tokens - n_decodes) / 2), sum = 0;
    int spare = s->blocks.n_free - s->n_running - s->blocks.n / 100;
    for (int i = 0; i < s->n_turns; i++) {
        struct request *r = s->turn[i];
        r->n_drafts = 0;
        if (s->setup.drafts.propose == NULL || !is_drafted(r) || n_feedable(r) != 1 || r->n_in_flight > 0 ||
            r->output.n == 0)
            continue;
        int n = propose(s, r, smaller(left, n_useful(r)), r->draft);
        r->n_drafts = n > 0 ? n_stored(r, n, &spare) : 0;
        left -= r->n_drafts;
        sum += r->n_drafts;
    }
    return sum;
}

bool drafts_wait(const struct scheduler *s)
{
    int32_t token[DRAFTS_MAX];
    if (s->setup.drafts.propose == NULL)
        return false;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        if (r->n_in_flight > 0 && is_drafted(r) &&
            (r->n_drafts > 0 || (r->output.n > 0 && propose(s, r, n_useful(r), token) > 1)))
            return true;
    }
    return false;
}

int drafts_settle(struct scheduler *s, struct request *r, const struct sampled *sampled, int n)
{
    int n_right = 1;
    if (n == 1)
        return 1;
    while (n_right < n && sampled[n_right - 1].token == r->draft[n_right - 1])
        n_right++;
    r->n_fed -= n - n_right;
    r->n_drafts = 0;
    s->stats.n_drafts++;
    s->stats.n_draft_tokens += (uint64_t)n - 1;
    return n_right;
}
