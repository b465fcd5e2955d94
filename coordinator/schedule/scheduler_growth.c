/* coordinator/schedule/scheduler_growth.c - the memory into which running sequences will grow; see scheduler_parts.h.
 *
 * All sequences are expected to get a token a step. When one of them ends, its blocks are free for the others: so most
 * memory is needed just before some sequence ends. Blocks that a sequence has found in the prefix cache may have other
 * holders, and count as taken for ever. */
#include "coordinator/schedule/scheduler_parts.h"

#include <stdlib.h>

void growth_learn(struct scheduler *s, const struct request *r)
{
    if (!r->steered && (r->finish == FINISH_STOP || r->finish == FINISH_LENGTH))
        lengths_note(&s->lengths, (int)r->output.n, r->rules->max_tokens, r->rules->fills);
}

/* A sequence with blocks for all its known tokens. */
static struct growing describe(const struct scheduler *s, const struct request *r)
{
    int n = (int)r->output.n, held = r->held[KV_MAIN].end, known = blocks_for(n_known(r));
    return (struct growing){.left = lengths_left(&s->lengths, n, r->rules->max_tokens, r->rules->fills),
                            .n_tokens = n_known(r),
                            .n_blocks = held > known ? held : known,
                            .n_found = r->state == REQUEST_RUNNING ? r->n_alike : 0};
}

static int by_end(const void *a, const void *b)
{
    return ((const struct growing *)a)->left - ((const struct growing *)b)->left;
}

void growth_begin(struct scheduler *s)
{
    s->n_growing = -1;
}

static void look(struct scheduler *s)
{
    s->n_growing = s->n_running;
    for (int i = 0; i < s->n_running; i++)
        s->growing[i] = describe(s, s->running[i]);
    qsort(s->growing, (size_t)s->n_growing, sizeof *s->growing, by_end);
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

void growth_add(struct scheduler *s, const struct request *r)
{
    const struct growing new = describe(s, r);
    if (s->n_growing >= 0)
        (void)insert(s, &new);
}

/* The most blocks that all of them will need beside those that they have: at most one too many for each, and none if
 * no blocks of those that end are needed. */
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
        blocks -= all[i].n_found; /* its others are free, for its successors */
    }
    return most < whole ? most : whole;
}

int growth_needed(struct scheduler *s, const struct request *r)
{
    const struct growing new = describe(s, r);
    if (s->n_growing < 0)
        look(s);
    int at = insert(s, &new);
    int64_t most = most_needed(s->growing, s->n_growing);
    s->n_growing--;
    memmove(&s->growing[at], &s->growing[at + 1], (size_t)(s->n_growing - at) * sizeof *s->growing);
    return most < INT32_MAX ? (int)most : INT32_MAX;
}
