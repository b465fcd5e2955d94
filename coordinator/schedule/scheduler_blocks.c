/* coordinator/schedule/scheduler_blocks.c - the KV blocks that a sequence holds, of both kinds; see
 * scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

#include <stdlib.h>

int kv_open(const struct scheduler *s, struct request *r, struct err *e)
{
    size_t n = (size_t)blocks_for((int)r->prompt.n + r->rules->max_tokens);
    for (int kind = 0; kind < s->n_kinds; kind++) {
        r->held[kind] = (struct held_blocks){.block = err_calloc(e, n, sizeof *r->held[kind].block, "KV block list")};
        if (r->held[kind].block == NULL)
            return -1;
    }
    return 0;
}

void kv_give_back(struct scheduler *s, struct request *r)
{
    for (int kind = 0; kind < s->n_kinds; kind++) {
        struct held_blocks *held = &r->held[kind];
        while (held->end > held->begin)
            blocks_give_back(&s->blocks[kind], held->block[--held->end]);
        held->begin = held->end = 0;
    }
}

int kv_begin(const struct scheduler *s, int kind, int pos)
{
    int window = limits_window(&s->setup.limits, kind), first = pos - window + 1;
    return window > 0 && first > 0 ? first / KV_BLOCK_TOKENS : 0;
}

static bool is_before(const struct scheduler *s, int kind, int block, int end)
{
    return block < end && block >= kv_begin(s, kind, end * KV_BLOCK_TOKENS);
}

/* Is the windowed block at this position worth keeping? A sequence with a known beginning continues where two sequences
 * parted, at the end of a prompt or of a sequence, and needs the window before that; blocks at all other positions
 * would only evict these. */
static bool is_worth_keeping(const struct scheduler *s, const struct request *r, int kind, int block)
{
    int end_of_prompt = ((int)r->prompt.n - 1) / KV_BLOCK_TOKENS;
    return kind == KV_MAIN || is_before(s, kind, block, r->n_alike) || is_before(s, kind, block, end_of_prompt);
}

static void pass(struct scheduler *s, struct request *r, int kind)
{
    struct held_blocks *held = &r->held[kind];
    int begin = kv_begin(s, kind, r->n_fed);
    for (; held->begin < begin && held->begin < held->end; held->begin++)
        if (is_worth_keeping(s, r, kind, held->begin))
            blocks_give_back(&s->blocks[kind], held->block[held->begin]);
        else
            blocks_give_up(&s->blocks[kind], held->block[held->begin]);
}

void kv_pass(struct scheduler *s)
{
    for (int kind = 0; kind < s->n_kinds; kind++)
        for (int i = 0; i < s->n_running && limits_window(&s->setup.limits, kind) > 0; i++)
            pass(s, s->running[i], kind);
}

void kv_add(struct request *r, int kind, int block, struct plan *p)
{
    struct held_blocks *held = &r->held[kind];
    p->block[p->n_blocks++] = (struct plan_block){r->slot, held->end, block, kind};
    held->block[held->end++] = block;
}

void kv_place(struct scheduler *s, struct request *r, int n, struct plan *p)
{
    for (int kind = 0; kind < s->n_kinds; kind++)
        while (r->held[kind].end < blocks_for(r->n_fed + n))
            kv_add(r, kind, blocks_take(&s->blocks[kind]), p);
}

int kv_placed(struct scheduler *s, const struct request *r, int n)
{
    for (int kind = 0; kind < s->n_kinds; kind++) {
        if (limits_window(&s->setup.limits, kind) == 0)
            continue;
        (void)blocks_have(&s->blocks[kind], blocks_for(r->n_fed + n) - r->held[kind].end + s->n_running);
        int64_t end = (int64_t)r->held[kind].end + s->blocks[kind].n_free - s->n_running;
        int64_t most = end * KV_BLOCK_TOKENS - r->n_fed;
        if (n > most)
            n = most > KV_BLOCK_TOKENS ? (int)most : n < KV_BLOCK_TOKENS ? n : KV_BLOCK_TOKENS;
    }
    return n;
}

int kv_missing(const struct scheduler *s, const struct request *r, int kind)
{
    const struct held_blocks *held = &r->held[kind];
    int all = blocks_for(n_known(r)) - held->end, window = limits_window(&s->setup.limits, kind);
    if (window == 0)
        return all;
    int most = limits_window_blocks(window) - (held->end - held->begin);
    return all < most ? all : most > 0 ? most : 0;
}

int kv_longest(const struct scheduler *s)
{
    const struct limits *l = &s->setup.limits;
    int64_t longest = l->max_len;
    for (int kind = 0; kind < s->n_kinds; kind++) {
        int n = limits_blocks(l, kind), window = limits_window(l, kind);
        bool moves = window > 0 && n >= limits_window_blocks(window);
        if (!moves && (int64_t)n * KV_BLOCK_TOKENS < longest)
            longest = (int64_t)n * KV_BLOCK_TOKENS;
    }
    return (int)longest;
}
