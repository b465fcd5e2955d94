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

void prefix_share(struct scheduler *s, struct request *r)
{
    int n = r->n_fed < n_known(r) ? r->n_fed : n_known(r);
    if ((r->n_shared + 1) * KV_BLOCK_TOKENS > n)
        return;
    int sharable = n_sharable(s, r);
    n = n < sharable ? n : sharable;
    for (; (r->n_shared + 1) * KV_BLOCK_TOKENS <= n; r->n_shared++) {
        int32_t token[KV_BLOCK_TOKENS];
        copy_tokens(r, r->n_shared * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
        r->chain = blocks_share(&s->blocks, r->block[r->n_shared], r->chain, token, s->n_plans);
    }
}

/* The number of its tokens that need not be fed if their blocks are there. */
static int n_skippable(const struct scheduler *s, const struct request *r)
{
    int n = n_known(r) - 1;                         /* the last one is fed: its logits are wanted */
    if (wants_scores(r) && n > r->n_scores_planned) /* tokens that are not fed have no logits */
        n = r->n_scores_planned;
    int sharable = n_sharable(s, r);
    return n < sharable ? n : sharable;
}

void prefix_hold(struct scheduler *s, struct request *r)
{
    int n = n_skippable(s, r) / KV_BLOCK_TOKENS;
    r->chain = r->family;
    for (r->n_blocks = 0; r->n_blocks < n; r->n_blocks++) {
        int32_t token[KV_BLOCK_TOKENS];
        copy_tokens(r, r->n_blocks * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
        int block = blocks_find(&s->blocks, r->chain, token, s->n_plans);
        if (block < 0)
            break;
        blocks_hold(&s->blocks, block);
        r->chain = s->blocks.block[block].name;
        r->block[r->n_blocks] = block;
    }
    r->n_shared = r->n_blocks;
}
