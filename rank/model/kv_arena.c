/* rank/model/kv_arena.c - see kv_arena.h. */
#include "rank/model/kv_arena.h"
#include "partition/shard.h"
#include "rank/model/network.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

size_t kv_arena_unit_bytes(size_t bytes)
{
    size_t unit = KV_UNIT_LEAST;
    while (2 * unit * KV_ARENA_UNITS <= bytes)
        unit *= 2;
    return unit;
}

int kv_arena_units(size_t bytes)
{
    return (int)(bytes / kv_arena_unit_bytes(bytes));
}

int kv_arena_open(struct kv_arena *a, size_t bytes, const struct ops *ops, struct queue *q, struct err *e)
{
    size_t unit = kv_arena_unit_bytes(bytes), n = bytes / unit;
    *a = (struct kv_arena){.unit_bytes = unit, .n_units = (int)n};
    a->user = err_calloc(e, n, sizeof *a->user, "units of KV memory");
    if (a->user == NULL)
        return -1;
    for (size_t i = 0; i < n; i++)
        a->user[i] = UNIT_BLANK;
    a->base = ops->alloc(q, n * unit);
    if (a->base == NULL)
        return ERR(e, ERR_MEMORY, "keys and values of all models need %zu bytes on this rank: %s", n * unit,
                   q->err.text);
    return 0;
}

void kv_arena_close(struct kv_arena *a, const struct ops *ops, struct queue *q)
{
    if (a->base != NULL)
        ops->free(q, a->base);
    free(a->user);
    memset(a, 0, sizeof *a);
}

/* Parts begin at multiples of their size; a unit that does not loses some memory. */
static size_t blocks_of_rank(size_t unit_bytes, size_t block, size_t part)
{
    size_t lost = unit_bytes % part != 0 ? part : 0;
    return unit_bytes > lost ? (unit_bytes - lost) / block : 0;
}

int kv_arena_per_unit(size_t unit_bytes, const struct model_config *m, int n_ranks, int window, enum kv_kind kind,
                      enum dtype act)
{
    size_t least = INT_MAX;
    for (int r = 0; r < n_ranks; r++) {
        struct shard s;
        shard_make(&s, m, r, n_ranks);
        size_t block = network_kv_block_bytes(m, &s, window, kind, act), part = network_kv_part_bytes(m, &s, act);
        size_t n = block > 0 ? blocks_of_rank(unit_bytes, block, part) : least;
        least = n < least ? n : least;
    }
    return (int)least;
}

size_t kv_arena_first(const struct kv_arena *a, int unit, size_t part)
{
    return ((size_t)unit * a->unit_bytes + part - 1) / part;
}

void kv_arena_claim(struct kv_arena *a, int unit, int model, const struct ops *ops, struct queue *q)
{
    if (a->user[unit] == model)
        return;
    if (a->user[unit] != UNIT_BLANK)
        ops->clear(q, a->base + (size_t)unit * a->unit_bytes, a->unit_bytes);
    a->user[unit] = model;
}

void kv_arena_forget(struct kv_arena *a, int model)
{
    for (int i = 0; i < a->n_units; i++)
        if (a->user[i] == model)
            a->user[i] = UNIT_LEFT;
}
