/* coordinator/schedule/scheduler_growth.c - the memory into which running sequences will grow; see scheduler_parts.h.
 *
 * All sequences are expected to get a token a step. When one of them ends, its blocks are free for the others: so most
 * memory is needed just before some sequence ends. Blocks with several holders count as taken for ever. A sequence
 * grows in windowed layers until it fills its window; there, blocks of those that end are not counted on. */
#include "coordinator/schedule/scheduler_parts.h"

void growth_learn(struct scheduler *s, const struct request *r)
{
    if (!r->steered && (r->finish == FINISH_STOP || r->finish == FINISH_LENGTH))
        lengths_note(&s->lengths, (int)r->output.n, r->rules->max_tokens, r->rules->fills);
}

static int n_left(const struct scheduler *s, const struct request *r)
{
    return lengths_left(&s->lengths, (int)r->output.n, r->rules->max_tokens, r->rules->fills);
}

/* The number of r's blocks that others hold, too. These are its first ones, but for equal blocks that were computed
 * twice: then it may be too small. */
static int n_shared_blocks(const struct scheduler *s, const struct request *r)
{
    const struct held_blocks *held = &r->held[KV_MAIN];
    int low = held->begin, high = held->end;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->blocks[KV_MAIN].block[held->block[middle]].n_holders > 1)
            low = middle + 1;
        else
            high = middle;
    }
    return low - held->begin;
}

/* A running sequence, or one that gets blocks for all its known tokens, beside those that it may have found. */
static struct growing describe(const struct scheduler *s, const struct request *r)
{
    bool runs = r->state == REQUEST_RUNNING;
    return (struct growing){.left = n_left(s, r),
                            .n_tokens = n_known(r),
                            .n_blocks = runs ? r->held[KV_MAIN].end : blocks_for(n_known(r)),
                            .n_shared = n_shared_blocks(s, r)};
}

/* The blocks that such a sequence will need in windowed layers beside those that it has. */
static int n_in_windows(const struct scheduler *s, const struct request *r, int kind)
{
    const struct held_blocks *held = &r->held[kind];
    int most = limits_window_blocks(limits_window(&s->setup.limits, kind)), all = blocks_for(n_known(r) + n_left(s, r));
    int has = r->state == REQUEST_RUNNING ? held->end - held->begin : smaller(blocks_for(n_known(r)), most);
    return smaller(all, most) > has ? smaller(all, most) - has : 0;
}

static bool is_windowed(const struct scheduler *s, int kind)
{
    return limits_window(&s->setup.limits, kind) > 0;
}

void growth_forget(struct scheduler *s)
{
    s->n_growing = -1;
}

/* Returns its place. */
static int insert(struct scheduler *s, const struct growing *new)
{
    int at = s->n_growing++;
    for (; at > 0 && s->growing[at - 1].left > new->left; at--)
        s->growing[at] = s->growing[at - 1];
    s->growing[at] = *new;
    return at;
}

/* The first ones that run are mostly the first to end, so there is little to sort. */
static void look(struct scheduler *s)
{
    s->n_growing = 0;
    for (int i = 0; i < s->n_running; i++) {
        const struct growing one = describe(s, s->running[i]);
        (void)insert(s, &one);
    }
    for (int kind = 0; kind < s->n_kinds; kind++) {
        s->growing_windows[kind] = 0;
        for (int i = 0; i < s->n_running && is_windowed(s, kind); i++)
            s->growing_windows[kind] += n_in_windows(s, s->running[i], kind);
    }
}

void growth_add(struct scheduler *s, const struct request *r)
{
    const struct growing new = describe(s, r);
    if (s->n_growing < 0)
        return;
    (void)insert(s, &new);
    for (int kind = 0; kind < s->n_kinds; kind++)
        s->growing_windows[kind] += is_windowed(s, kind) ? n_in_windows(s, r, kind) : 0;
}

/* An upper bound of the blocks that all of them will need at once beside those that they have: `whole` if nobody ends
 * before the others have grown. */
static int64_t most_needed(const struct growing *all, int n)
{
    int64_t tokens = 0, blocks = 0, whole = 0, most = 0;
    for (int i = 0; i < n; i++) {
        tokens += all[i].n_tokens + KV_BLOCK_TOKENS - 1;
        blocks += all[i].n_blocks;
        whole += blocks_for(all[i].n_tokens + all[i].left) - all[i].n_blocks;
    }
    for (int i = 0; i < n; i++) {
        int64_t then = (tokens + (int64_t)(n - i) * all[i].left) / KV_BLOCK_TOKENS - blocks;
        most = then > most ? then : most;
        tokens -= all[i].n_tokens + KV_BLOCK_TOKENS - 1;
        blocks -= all[i].n_shared; /* its others are free, for those that go on */
    }
    return most < whole ? most : whole;
}

/* The same with r. */
static int64_t most_with(struct scheduler *s, const struct request *r)
{
    const struct growing new = describe(s, r);
    int at = insert(s, &new);
    int64_t most = most_needed(s->growing, s->n_growing);
    s->n_growing--;
    memmove(&s->growing[at], &s->growing[at + 1], (size_t)(s->n_growing - at) * sizeof *s->growing);
    return most;
}

/* The blocks of sequences that are less urgent than r: they are preempted before r is. */
static int n_yielded(const struct scheduler *s, const struct request *r, int kind)
{
    int n = 0;
    for (int i = s->n_running - 1; i >= 0 && s->running[i]->priority > r->priority; i--) {
        const struct held_blocks *held = &s->running[i]->held[kind];
        n += held->end - held->begin - (kind == KV_MAIN ? n_shared_blocks(s, s->running[i]) : 0);
    }
    return n;
}

int growth_needed(struct scheduler *s, const struct request *r, int kind)
{
    if (s->n_growing < 0)
        look(s);
    int64_t most = is_windowed(s, kind) ? s->growing_windows[kind] + n_in_windows(s, r, kind) : most_with(s, r);
    most -= n_yielded(s, r, kind);
    return (int)(most < s->blocks[kind].most ? most : s->blocks[kind].most);
}
