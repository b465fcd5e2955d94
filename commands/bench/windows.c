/* commands/bench/windows.c - see windows.h. */
#include "commands/bench/windows.h"

#include <stdlib.h>
#include <string.h>

int64_t windows_needed(const struct limits *l, int n_seqs)
{
    int step = (l->max_batch_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    return limits_kinds(l) > 1 ? (int64_t)n_seqs * limits_window_blocks(l->window) + step : 0;
}

int windows_open(struct windows *w, const struct limits *l, struct err *e)
{
    memset(w, 0, sizeof *w);
    w->limits = *l;
    if (limits_kinds(l) == 1)
        return 0;
    w->held = err_calloc(e, (size_t)l->max_seqs, sizeof *w->held, "KV block list");
    w->block = err_calloc(e, (size_t)limits_table_entries(l), sizeof *w->block, "KV block list");
    return w->held != NULL && w->block != NULL ? blocks_open(&w->blocks, l->n_window_blocks, e) : -1;
}

void windows_close(struct windows *w)
{
    blocks_close(&w->blocks);
    free(w->held);
    free(w->block);
    memset(w, 0, sizeof *w);
}

void windows_feed(struct windows *w, int seq, int pos, int n, struct plan *p)
{
    int per_slot = limits_blocks_per_slot(&w->limits), seen = pos - w->limits.window + 1;
    if (limits_kinds(&w->limits) == 1)
        return;
    struct window_held *held = &w->held[seq];
    int *block = w->block + (ptrdiff_t)seq * per_slot, begin = seen > 0 ? seen / KV_BLOCK_TOKENS : 0;
    int kept = pos == 0 ? held->end : begin;
    for (; held->begin < kept; held->begin++)
        blocks_give_back(&w->blocks, block[held->begin]);
    if (pos == 0)
        held->begin = held->end = 0;
    for (; held->end * KV_BLOCK_TOKENS < pos + n; held->end++) {
        block[held->end] = blocks_take(&w->blocks);
        p->block[p->n_blocks++] = (struct plan_block){seq, held->end, block[held->end], KV_WINDOWED};
    }
}
