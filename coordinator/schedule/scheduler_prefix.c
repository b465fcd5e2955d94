/* coordinator/schedule/scheduler_prefix.c - blocks that are found again by the same tokens; see scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

/* The number of its first tokens whose keys and values any sequence with the same tokens would have. */
static int n_sharable(const struct scheduler *s, const struct request *r)
{
    int limit = s->setup.rope_changes_at;
    if (!s->setup.prefix_caching && r->family == 0)
        return 0;
    if (limit == 0)
        return INT32_MAX;
    return (int)r->prompt.n <= limit ? limit : 0;
}

/* Takes the block after the shared ones, of every kind that still has it. Its name is that of KV_MAIN, which stands for
 * all tokens before, whichever blocks are gone. */
static uint64_t share_block(struct scheduler *s, struct request *r, const int32_t *token)
{
    uint64_t name = 0;
    for (int kind = s->n_kinds - 1; kind >= 0; kind--)
        if (r->held[kind].begin <= r->n_shared)
            name = blocks_share(&s->blocks[kind], r->held[kind].block[r->n_shared], r->chain, token, s->n_plans);
    return name;
}

void prefix_share(struct scheduler *s, struct request *r)
{
    int n = r->n_fed < n_known(r) ? r->n_fed : n_known(r);
    if ((r->n_shared + 1) * KV_BLOCK_TOKENS > n || r->held[KV_MAIN].begin > r->n_shared)
        return;
    int sharable = n_sharable(s, r);
    n = n < sharable ? n : sharable;
    for (; (r->n_shared + 1) * KV_BLOCK_TOKENS <= n; r->n_shared++) {
        int32_t token[KV_BLOCK_TOKENS];
        copy_tokens(r, r->n_shared * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
        r->chain = share_block(s, r, token);
    }
}

/* The number of its tokens that need not be fed if their blocks are cached. */
static int n_skippable(const struct scheduler *s, const struct request *r)
{
    int n = n_known(r) - 1;                         /* the last one is fed, since its logits are needed */
    if (wants_scores(r) && n > r->n_scores_planned) /* tokens that are not fed have no logits */
        n = r->n_scores_planned;
    int sharable = n_sharable(s, r);
    return n < sharable ? n : sharable;
}

/* Looks in every kind for block number i of r, whose predecessor is named *chain. run: [KV_KINDS] number found in a
 * row. False: KV_MAIN does not have it. */
static bool find_block(const struct scheduler *s, struct request *r, int i, uint64_t *chain, int *run)
{
    int32_t token[KV_BLOCK_TOKENS];
    copy_tokens(r, i * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
    for (int kind = 0; kind < s->n_kinds; kind++) {
        r->held[kind].block[i] = blocks_find(&s->blocks[kind], *chain, token, s->n_plans);
        run[kind] = r->held[kind].block[i] >= 0 ? run[kind] + 1 : 0;
    }
    if (run[KV_MAIN] == 0)
        return false;
    *chain = s->blocks[KV_MAIN].block[r->held[KV_MAIN].block[i]].name;
    return true;
}

/* Is everything cached that a token after n blocks sees? */
static bool all_seen(const struct scheduler *s, int n, const int *run)
{
    for (int kind = 0; kind < s->n_kinds; kind++)
        if (run[kind] < n - kv_begin(s, kind, n * KV_BLOCK_TOKENS))
            return false;
    return true;
}

void prefix_hold(struct scheduler *s, struct request *r)
{
    int n = n_skippable(s, r) / KV_BLOCK_TOKENS, run[KV_KINDS] = {0};
    uint64_t chain = r->chain = r->family;
    r->n_shared = r->n_alike = 0;
    while (r->n_alike < n && find_block(s, r, r->n_alike, &chain, run))
        if (all_seen(s, ++r->n_alike, run)) {
            r->n_shared = r->n_alike;
            r->chain = chain;
        }
    for (int kind = 0; kind < s->n_kinds; kind++) {
        struct held_blocks *held = &r->held[kind];
        held->begin = kv_begin(s, kind, r->n_shared * KV_BLOCK_TOKENS);
        held->end = r->n_shared;
        for (int i = held->begin; i < held->end; i++)
            blocks_hold(&s->blocks[kind], held->block[i]);
    }
}
