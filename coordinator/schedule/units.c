/* coordinator/schedule/units.c - see units.h. */
#include "coordinator/schedule/units.h"

#include <stdlib.h>
#include <string.h>

#define N_HOLDERS (PLAN_MODELS * KV_KINDS)

int units_open(struct units *u, int n, struct err *e)
{
    memset(u, 0, sizeof *u);
    u->owner = err_calloc(e, (size_t)n, sizeof *u->owner, "units of KV memory");
    if (u->owner == NULL)
        return -1;
    u->n = u->n_free = n;
    for (int i = 0; i < n; i++)
        u->owner[i] = -1;
    return 0;
}

static void close_holder(struct unit_holder *h)
{
    free(h->unit);
    free(h->leaving);
    free(h->count);
    memset(h, 0, sizeof *h);
}

void units_close(struct units *u)
{
    for (int i = 0; i < N_HOLDERS; i++)
        close_holder(&u->holder[i]);
    free(u->owner);
    memset(u, 0, sizeof *u);
}

/* ---- shares ---- */

static int usable(const struct unit_holder *h)
{
    return h->n_held - h->n_leaving;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* The part of each model with requests: an equal share of the units beyond the `least` of idle models. */
static int equal_part(const struct units *u)
{
    int n = u->n, n_busy = 0;
    for (int i = 0; i < N_HOLDERS; i++) {
        const struct unit_holder *h = &u->holder[i];
        if (h->blocks == NULL)
            continue;
        n_busy += h->busy && i % KV_KINDS == KV_MAIN;
        n -= h->busy ? 0 : usable(h) < h->share.least ? usable(h) : h->share.least;
    }
    return n_busy > 0 ? n / n_busy : n;
}

static int within(const struct unit_holder *h, int part)
{
    part = larger(part, h->share.least);
    return part < h->share.most ? part : h->share.most;
}

/* A holder's share of its model's part: windows have up to half of it, the other kind the rest. */
static int part_of(const struct unit_holder *h, int part)
{
    int kind = (int)(h - h->all->holder) % KV_KINDS;
    const struct unit_holder *windowed = h - kind + KV_WINDOWED;
    if (kind == KV_WINDOWED)
        return within(h, part / 2);
    return within(h, windowed->blocks != NULL ? part - within(windowed, part / 2) : part);
}

/* ---- moving units ---- */

static void give_up(struct units *u, struct unit_holder *h, int k)
{
    u->owner[h->unit[k]] = -1;
    u->n_free++;
    h->unit[k] = -1;
    h->n_held--;
    h->n_leaving -= h->leaving[k];
    h->leaving[k] = false;
}

static bool is_held(const struct unit_holder *h, int k)
{
    int n = h->share.per_unit;
    for (int i = k * n; i < (k + 1) * n; i++)
        if (h->blocks->block[i].n_holders > 0)
            return true;
    return false;
}

/* Frees withdrawn units whose last block has been released. */
static void settle(struct units *u)
{
    for (int i = 0; i < N_HOLDERS; i++) {
        struct unit_holder *h = &u->holder[i];
        for (int k = 0; h->n_leaving > 0 && k < h->share.most; k++)
            if (h->leaving[k] && !is_held(h, k))
                give_up(u, h, k);
    }
}

static void withdraw(struct unit_holder *h, int k)
{
    blocks_withdraw(h->blocks, k * h->share.per_unit, h->share.per_unit);
    h->leaving[k] = true;
    h->n_leaving++;
    h->n_taken++;
}

static void grant(struct units *u, struct unit_holder *h)
{
    int k = 0, unit = 0;
    while (h->unit[k] >= 0)
        k++;
    while (u->owner[unit] >= 0)
        unit++;
    u->owner[unit] = (int)(h - u->holder);
    u->n_free--;
    h->unit[k] = unit;
    h->n_held++;
    blocks_add(h->blocks, k * h->share.per_unit, h->share.per_unit);
}

/* ---- sources of units ---- */

/* The least recently used unit without held blocks; -1: none. *n: the number of such units. */
static int find_unused(const struct unit_holder *h, int *n)
{
    const struct blocks *b = h->blocks;
    int first = -1;
    *n = 0;
    memset(h->count, 0, (size_t)h->share.most * sizeof *h->count);
    for (int i = b->oldest; i >= 0; i = b->block[i].newer) {
        int k = i / h->share.per_unit;
        if (++h->count[k] < h->share.per_unit)
            continue;
        first = first < 0 ? k : first;
        ++*n;
    }
    return first;
}

/* The unit with the fewest held blocks, of those not withdrawn. */
static int find_emptiest(const struct unit_holder *h)
{
    int best = -1, fewest = 0;
    for (int k = 0; k < h->share.most; k++) {
        int n = 0;
        if (h->unit[k] < 0 || h->leaving[k])
            continue;
        for (int i = k * h->share.per_unit; i < (k + 1) * h->share.per_unit; i++)
            n += h->blocks->block[i].n_holders > 0;
        if (best < 0 || n < fewest) {
            best = k;
            fewest = n;
        }
    }
    return best;
}

static bool take_unused(struct units *u, struct unit_holder *from, int k)
{
    withdraw(from, k);
    give_up(u, from, k);
    return true;
}

/* Units of models without requests. */
static bool take_of_idle(struct units *u)
{
    struct unit_holder *from = NULL;
    int n;
    for (int i = 0; i < N_HOLDERS; i++) {
        struct unit_holder *h = &u->holder[i];
        if (h->blocks != NULL && !h->busy && usable(h) > h->share.least && (from == NULL || h->used < from->used))
            from = h;
    }
    int k = from != NULL ? find_unused(from, &n) : -1;
    return k >= 0 && take_unused(u, from, k);
}

/* Unused units of models with requests, which keep `least`, and one unused unit if they have no more than their
 * part. */
static bool take_of_busy(struct units *u, const struct unit_holder *asks, int part)
{
    for (int i = 0; i < N_HOLDERS; i++) {
        struct unit_holder *h = &u->holder[i];
        int n;
        if (h == asks || h->blocks == NULL || !h->busy || usable(h) <= h->share.least)
            continue;
        int k = find_unused(h, &n);
        if (k >= 0 && (n > 1 || usable(h) > part_of(h, part)))
            return take_unused(u, h, k);
    }
    return false;
}

/* The model with most units above its part withdraws a unit in use. */
static void ask_to_leave(struct units *u, const struct unit_holder *asks, int part)
{
    struct unit_holder *from = NULL;
    int most = 0;
    for (int i = 0; i < N_HOLDERS; i++) {
        struct unit_holder *h = &u->holder[i];
        if (h == asks || h->blocks == NULL)
            continue;
        int above = usable(h) - (usable(asks) < asks->share.least ? h->share.least : part_of(h, part));
        if (above > most) {
            most = above;
            from = h;
        }
    }
    int k = from != NULL ? find_emptiest(from) : -1;
    if (k >= 0)
        withdraw(from, k);
}

/* Units that other models have requested in vain. */
struct unit_demand {
    int least, part; /* by models below their `least`; by all models below their part */
    int leaving;     /* withdrawn units, which other models will get */
};

static struct unit_demand count_demand(const struct units *u, const struct unit_holder *but, int part)
{
    struct unit_demand d = {0};
    for (int i = 0; i < N_HOLDERS; i++) {
        const struct unit_holder *h = &u->holder[i];
        int missing = h->share.least - usable(h);
        d.leaving += h->n_leaving;
        if (h == but || h->blocks == NULL || !h->wants)
            continue;
        d.least += missing > 0 ? missing : 0;
        d.part += usable(h) < part_of(h, part) ? larger(1, missing) : 0;
    }
    return d;
}

/* Does h have priority for one of the free units? */
static bool may_have(const struct unit_holder *h, bool urgent, int part, const struct unit_demand *others)
{
    int n_free = h->all->n_free;
    if (usable(h) < h->share.least)
        return n_free > 0;
    return n_free > (urgent && usable(h) < part_of(h, part) ? others->least : others->part);
}

/* A unit for h is free, or has become so. */
static bool find_unit(struct units *u, const struct unit_holder *h, bool urgent)
{
    int part = equal_part(u);
    bool below = usable(h) < part_of(h, part);
    const struct unit_demand others = count_demand(u, h, part);
    if (may_have(h, urgent, part, &others))
        return true;
    if (!urgent)
        return false;
    if (take_of_idle(u) || take_of_busy(u, h, part))
        return may_have(h, true, part, &others);
    if (below && others.leaving + u->n_free < others.part + larger(1, h->share.least - usable(h)))
        ask_to_leave(u, h, part);
    return false;
}

/* struct blocks_source. */
static bool more_units(void *context, bool urgent)
{
    struct unit_holder *h = context;
    struct units *u = h->all;
    settle(u);
    if (h->n_held == h->share.most || (u->n_free == 0 && !urgent))
        return false;
    if (!find_unit(u, h, urgent)) {
        h->wants = h->wants || urgent;
        return false;
    }
    grant(u, h);
    return true;
}

/* ---- models added and removed ---- */

static int join_holder(struct units *u, struct unit_holder *h, struct blocks *blocks, const struct unit_share *share,
                       struct err *e)
{
    size_t most = (size_t)share->most;
    h->unit = err_calloc(e, most, sizeof *h->unit, "units of KV memory");
    h->leaving = err_calloc(e, most, sizeof *h->leaving, "units of KV memory");
    h->count = err_calloc(e, most, sizeof *h->count, "units of KV memory");
    if (e->code != ERR_NONE)
        return -1;
    memset(h->unit, 0xff, most * sizeof *h->unit);
    h->all = u;
    h->blocks = blocks;
    h->share = *share;
    h->used = u->n_notes;
    return 0;
}

int units_join(struct units *u, int i, struct blocks *blocks, const struct unit_share *share,
               struct blocks_source *source, struct err *e)
{
    struct unit_holder *h = &u->holder[KV_KINDS * i];
    for (int kind = 0; kind < KV_KINDS; kind++)
        if (share[kind].per_unit > 0 && join_holder(u, &h[kind], &blocks[kind], &share[kind], e) == 0)
            source[kind] = (struct blocks_source){&h[kind], more_units};
    for (int kind = 0; kind < KV_KINDS && e->code != ERR_NONE; kind++)
        close_holder(&h[kind]);
    return e->code == ERR_NONE ? 0 : -1;
}

void units_leave(struct units *u, int i)
{
    for (int kind = 0; kind < KV_KINDS; kind++) {
        struct unit_holder *h = &u->holder[KV_KINDS * i + kind];
        for (int k = 0; h->blocks != NULL && k < h->share.most; k++)
            if (h->unit[k] >= 0)
                give_up(u, h, k);
        close_holder(h);
    }
}

void units_note(struct units *u, int i, bool busy)
{
    u->n_notes += busy;
    for (int kind = 0; kind < KV_KINDS; kind++) {
        struct unit_holder *h = &u->holder[KV_KINDS * i + kind];
        h->busy = busy;
        h->wants = false;
        h->used = busy ? u->n_notes : h->used;
    }
}

void units_number(const struct units *u, int i, struct plan *p)
{
    for (int k = 0; k < p->n_blocks; k++) {
        const struct unit_holder *h = &u->holder[KV_KINDS * i + p->block[k].kind];
        int n = h->share.per_unit, block = p->block[k].block;
        p->block[k].block = h->unit[block / n] * n + block % n;
    }
}

int units_held(const struct units *u, int i)
{
    return u->holder[KV_KINDS * i + KV_MAIN].n_held + u->holder[KV_KINDS * i + KV_WINDOWED].n_held;
}
