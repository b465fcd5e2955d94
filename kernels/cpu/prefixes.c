/* kernels/cpu/prefixes.c - sequences that begin with the same KV blocks. */
#include "kernels/cpu/cpu.h"

/* The number of token t's blocks to which no step writes any more; 0: it belongs to no sequence. */
static int full_blocks(const struct batch *b, int t)
{
    int n = b->slot[t] >= 0 && b->pos[t] >= 0 ? b->pos[t] / KV_BLOCK_TOKENS : 0;
    return n < b->blocks_per_slot ? n : b->blocks_per_slot;
}

/* The number of first blocks that tokens t and u have in common. */
static int same_blocks(const struct batch *b, int t, int u)
{
    const int32_t *x = b->block_table + (ptrdiff_t)b->slot[t] * b->blocks_per_slot;
    const int32_t *y = b->block_table + (ptrdiff_t)b->slot[u] * b->blocks_per_slot;
    int most = full_blocks(b, t) < full_blocks(b, u) ? full_blocks(b, t) : full_blocks(b, u), n = 0;
    while (n < most && x[n] >= 0 && x[n] == y[n])
        n++;
    return n;
}

/* same: [n] number of blocks in common with the leader. Returns the best number of blocks to share; 0: none. */
static int best_blocks(const int *same, int n)
{
    int64_t most = 0;
    int best = 0;
    for (int t = 0; t < n; t++) {
        int64_t members = 0;
        for (int u = 0; u < n && same[t] >= PREFIX_BLOCKS; u++)
            members += same[u] >= same[t];
        int64_t saved = (members - 1) * same[t];
        if (members >= PREFIX_MEMBERS && (saved > most || (saved == most && same[t] > best))) {
            most = saved;
            best = same[t];
        }
    }
    return best;
}

/* Adds the prefix of n_blocks blocks and the tokens that share it. */
static void add_prefix(struct prefixes *p, const int *same, int n, int n_blocks, int *n_members)
{
    struct shared_prefix *prefix = &p->prefix[p->n_prefixes];
    *prefix = (struct shared_prefix){*n_members, 0, n_blocks};
    for (int t = 0; t < n; t++)
        if (same[t] >= n_blocks) {
            p->place[t] = *n_members;
            p->prefix_of[t] = p->n_prefixes;
            p->member[(*n_members)++] = t;
            prefix->n_members++;
        }
    p->n_prefixes++;
}

void cpu_find_prefixes(struct queue *q, struct prefixes *p, const struct batch *batch)
{
    int n = batch->n_alone < PREFIX_TOKENS ? batch->n_alone : PREFIX_TOKENS, n_members = 0;
    bool led[PREFIX_TOKENS] = {false}; /* was compared with all others */
    (void)q;
    *p = (struct prefixes){0};
    for (int t = 0; t < PREFIX_TOKENS; t++)
        p->member[t] = p->place[t] = p->prefix_of[t] = -1;
    for (int lead = 0, round = 0; lead < n && round < PREFIX_COUNT; lead++) {
        int same[PREFIX_TOKENS];
        if (led[lead] || p->place[lead] >= 0)
            continue;
        for (int t = 0; t < n; t++)
            same[t] = led[t] || p->place[t] >= 0 ? 0 : same_blocks(batch, lead, t);
        int n_blocks = best_blocks(same, n);
        if (n_blocks > 0)
            add_prefix(p, same, n, n_blocks, &n_members);
        led[lead] = true;
        round++;
    }
}
