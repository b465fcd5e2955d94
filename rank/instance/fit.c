/* rank/instance/fit.c - see fit.h. */
#include "rank/instance/fit.h"
#include "base/memory_limit.h"
#include "rank/step/engine.h"
#include "rank/world/fatal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB        (1024.0 * 1024.0 * 1024.0)
#define SPARE      ((size_t)512 << 20)
#define FEW_TOKENS 512

/* Bytes of every role on this rank once loaded, and the peak before that. A config that contradicts the checkpoint
 * fails here, with the tensor's name, before its sizes are refused as too large for this machine. */
static size_t expected_bytes(const struct model_config *m, const struct shard *s, const struct checkpoint *c,
                             size_t *most, struct err *e)
{
    struct weight_map map = {0};
    size_t bytes = 0;
    *most = 0;
    if (weight_map_build(&map, m, s, c, e) == 0)
        bytes = weight_map_fp8_bytes(&map, m, most);
    weight_map_free(&map);
    return bytes;
}

/* The memory that network_open takes beside quantised weights. */
static size_t wide_bytes(const struct model_config *m, const struct ops *ops)
{
    bool any = m->quantization.format != FORMAT_NONE || m->weights_fp8 || m->head_fp8;
    return any && !ops->shares_host_memory ? WIDE_BYTES : 0;
}

static size_t working_bytes(const struct model_config *m, const struct shard *s, const struct limits *l,
                            const struct ops *ops, enum dtype act, struct err *e)
{
    struct network *n = err_calloc(e, 1, sizeof *n, "network");
    if (n == NULL)
        return 0;
    n->config = *m;
    n->shard = *s;
    size_t bytes = engine_bytes(n, l, ops, act, e) + comm_cut_bytes(ops, s->n_ranks, l->sum_pieces);
    free(n);
    return bytes;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void fit_kinds(struct limits *l, const struct model_config *m)
{
    int n_windowed, window = model_window(m, l->max_len, &n_windowed);
    int64_t step = (l->max_batch_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    int64_t wanted = 2 * ((int64_t)l->max_seqs * limits_window_blocks(window) + step);
    bool mixed = n_windowed > 0 && n_windowed < m->n_layers, pays = wanted < l->n_blocks;
    l->window = mixed && !pays ? 0 : window;
    l->n_window_blocks = mixed && pays ? (int32_t)wanted : 0;
}

void fit_block_bytes(const struct model_config *m, const struct shard *s, const struct limits *l, enum dtype act,
                     size_t block[KV_KINDS])
{
    for (int kind = 0; kind < KV_KINDS; kind++)
        block[kind] = network_kv_block_bytes(m, s, limits_window(l, KV_WINDOWED), (enum kv_kind)kind, act);
}

static size_t sum_bytes(const struct limits *l, const size_t block[KV_KINDS])
{
    return (size_t)l->n_blocks * block[KV_MAIN] + (size_t)l->n_window_blocks * block[KV_WINDOWED];
}

size_t fit_kv_bytes(const struct model_config *m, const struct shard *s, const struct limits *l, enum dtype act)
{
    size_t block[KV_KINDS];
    fit_block_bytes(m, s, l, act, block);
    return sum_bytes(l, block);
}

/* The number of the `wanted` blocks that fit into this many bytes. */
static int32_t n_held(size_t bytes, size_t block, int32_t wanted)
{
    return block == 0 || bytes / block >= (size_t)wanted ? wanted : (int32_t)(bytes / block);
}

void fit_divide(struct limits *l, const size_t block[KV_KINDS], size_t available)
{
    size_t wanted = sum_bytes(l, block), windows = (size_t)l->n_window_blocks * block[KV_WINDOWED];
    if (wanted <= available)
        return;
    double share = (double)windows / (double)wanted;
    size_t most = (size_t)((double)available * (share > 0.5 ? share : 0.5));
    int32_t all = l->n_blocks, windowed = l->n_window_blocks, both = n_held(available, block[0] + block[1], all);
    int32_t n = n_held(most, block[KV_WINDOWED], windowed);
    int32_t least = (int32_t)smaller(smaller(limits_window_blocks(l->window), both), windowed);
    n = n > least ? n : least;
    l->n_blocks = n_held(available - (size_t)n * block[KV_WINDOWED], block[KV_MAIN], all);
    l->n_window_blocks = n_held(available - (size_t)l->n_blocks * block[KV_MAIN], block[KV_WINDOWED], windowed);
}

/* Bytes that will certainly be allocated: those of the requested blocks, as far as they fit into a given size, or of
 * one block of each kind if the size is chosen here. */
static size_t least_bytes(const struct limits *l, const size_t block[KV_KINDS], int64_t kv_bytes)
{
    struct limits held = *l;
    if (kv_bytes < 0)
        return block[KV_MAIN] + block[KV_WINDOWED];
    fit_divide(&held, block, (size_t)kv_bytes);
    return sum_bytes(&held, block);
}

/* The bytes of one block of each kind, of all models together. */
static void block_bytes(const struct fit_part *part, int n_parts, size_t block[KV_KINDS])
{
    memset(block, 0, KV_KINDS * sizeof *block);
    for (int i = 0; i < n_parts; i++) {
        size_t own[KV_KINDS];
        fit_block_bytes(part[i].model, part[i].shard, &part[i].limits, part[i].act, own);
        for (int kind = 0; kind < KV_KINDS; kind++)
            block[kind] += own[kind];
    }
}

static size_t working_of_all(const struct fit_part *part, int n_parts, const struct ops *ops, struct err *e)
{
    size_t bytes = 0;
    for (int i = 0; i < n_parts; i++)
        bytes += working_bytes(part[i].model, part[i].shard, &part[i].limits, ops, part[i].act, e);
    return bytes;
}

/* *most: the peak of bytes during loading, one model after the other. */
static size_t weights_of_all(const struct fit_part *part, int n_parts, const struct ops *ops, size_t *most,
                             struct err *e)
{
    size_t bytes = 0;
    *most = 0;
    for (int i = 0; i < n_parts; i++) {
        size_t loading, own = expected_bytes(part[i].model, part[i].shard, part[i].checkpoint, &loading, e);
        size_t wide = wide_bytes(part[i].model, ops), then = bytes + loading + wide;
        *most = then > *most ? then : *most;
        bytes += own + wide;
    }
    return bytes;
}

/* ", within ulimit -v": after the free bytes; empty if no limit of the job counts. */
static void name_limit(char *text, size_t bytes, const struct fit *f)
{
    (void)snprintf(text, bytes, "%s%s", f->limit != NULL ? " within " : "", f->limit != NULL ? f->limit : "");
}

int fit_judge(const struct fit *f, bool host, struct err *e)
{
    char limit[80];
    name_limit(limit, sizeof limit, f);
    size_t all = f->weights + f->working + f->kv_least;
    if (f->available == 0 || (all <= f->available && f->loading <= f->available))
        return 0;
    if (all <= f->available)
        return ERR(e, ERR_MEMORY,
                   "needed on this %s while weights become FP8: %.2f GiB, %.2f afterwards; %.2f GiB are free%s: use "
                   "more %s, or a checkpoint that is quantised",
                   host ? "host" : "device", (double)f->loading / GIB, (double)all / GIB, (double)f->available / GIB,
                   limit, host ? "nodes" : "ranks");
    return ERR(e, ERR_MEMORY,
               "needed on this %s: %.2f GiB = %.2f of weights + %.2f of working memory + %.2f for keys and values "
               "(%.2f wanted); %.2f GiB are free%s: use more %s, a smaller model, or a smaller --max-batch-tokens",
               host ? "host" : "device", (double)all / GIB, (double)f->weights / GIB, (double)f->working / GIB,
               (double)f->kv_least / GIB, (double)f->kv_wanted / GIB, (double)f->available / GIB, limit,
               host ? "nodes" : "ranks");
}

int fit_heads(const struct model_config *m, const struct ops *ops, struct err *e)
{
    if (ops->max_head_dim == 0 || m->head_dim <= ops->max_head_dim)
        return 0;
    return ERR(e, ERR_UNSUPPORTED, "head_dim %d: attention on %s takes up to %d elements a head (--device cpu: any)",
               m->head_dim, ops->name, ops->max_head_dim);
}

/* Bytes of weights on the rank that holds most. */
static size_t most_weights(const struct model_config *m, const struct checkpoint *c, int n_ranks, struct err *e)
{
    size_t most = 0;
    for (int r = 0; r < n_ranks && e->code == ERR_NONE; r++) {
        struct shard s;
        shard_make(&s, m, r, n_ranks);
        size_t loading, bytes = expected_bytes(m, &s, c, &loading, e);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int fit_need(const struct model_config *m, const struct checkpoint *c, const struct limits *l, int n_ranks,
             const struct ops *ops, int64_t *need, struct err *e)
{
    enum dtype act = ops->act_type(m->dtype);
    *need = 0;
    if (fit_heads(m, ops, e) != 0)
        return -1;
    for (int r = 0; r < n_ranks && e->code == ERR_NONE; r++) {
        struct shard s;
        shard_make(&s, m, r, n_ranks);
        size_t loading, weights = expected_bytes(m, &s, c, &loading, e);
        int64_t bytes = (int64_t)(weights + wide_bytes(m, ops) + working_bytes(m, &s, l, ops, act, e));
        *need = bytes > *need ? bytes : *need;
    }
    return e->code == ERR_NONE ? 0 : -1;
}

int fit_step(const struct fit_part *part, int n_parts, const struct ops *ops, size_t available, struct err *e)
{
    struct fit_part mine[FIT_PARTS];
    size_t loading, weights = weights_of_all(part, n_parts, ops, &loading, e);
    size_t rest = available > weights ? available - weights : 0;
    int tokens = part->limits.max_batch_tokens, n_seqs = part->limits.max_seqs;
    int least = n_seqs > FEW_TOKENS ? n_seqs : FEW_TOKENS;
    memcpy(mine, part, (size_t)n_parts * sizeof *part);
    while (available > 0 && e->code == ERR_NONE && tokens / 2 >= least &&
           working_of_all(mine, n_parts, ops, e) > rest / 8) {
        tokens /= 2;
        for (int i = 0; i < n_parts; i++)
            mine[i].limits.max_batch_tokens = tokens;
    }
    return tokens;
}

#define KV_USEFUL ((size_t)64 << 20)

/* Numbers of blocks and of their elements have 32 bits. */
static bool are_countable(const struct model_config *m, enum dtype act, size_t kv_bytes, size_t n_blocks)
{
    size_t part = KV_BLOCK_TOKENS * (size_t)m->head_dim * (m->kv_fp8 ? 1 : dtype_bytes(act));
    return kv_bytes / part <= INT32_MAX && n_blocks <= INT32_MAX;
}

static size_t units_for(int64_t blocks, size_t per_unit)
{
    return per_unit > 0 ? ((size_t)blocks + per_unit - 1) / per_unit : 0;
}

/* Blocks per unit, for each kind of the limits. */
static void count_blocks(size_t per[KV_KINDS], const struct limits *l, const struct model_config *m, int n_ranks,
                         size_t unit, enum dtype act)
{
    int window = limits_window(l, KV_WINDOWED);
    for (int kind = 0; kind < KV_KINDS; kind++)
        per[kind] =
            kind < limits_kinds(l) ? (size_t)kv_arena_per_unit(unit, m, n_ranks, window, (enum kv_kind)kind, act) : 0;
}

/* The most blocks of a kind that one sequence holds at once. */
static int64_t blocks_of_one(const struct limits *l, int kind)
{
    int window = limits_window(l, kind), all = limits_blocks_per_slot(l);
    return window > 0 && limits_window_blocks(window) < all ? limits_window_blocks(window) : all;
}

/* The units of windowed blocks for one sequence; 0: not both windowed and other layers. */
static size_t units_of_windows(const struct limits *l, const size_t per[KV_KINDS])
{
    return limits_kinds(l) > 1 ? units_for(blocks_of_one(l, KV_WINDOWED), per[KV_WINDOWED]) : 0;
}

/* The sequence length that `useful` units hold; unlimited if all layers have windows that fit. */
static size_t longest_in(const struct limits *l, const size_t per[KV_KINDS], size_t useful)
{
    size_t blocks = (useful - units_of_windows(l, per)) * per[KV_MAIN];
    return limits_window(l, KV_MAIN) > 0 && (size_t)blocks_of_one(l, KV_MAIN) <= blocks ? SIZE_MAX
                                                                                        : blocks * KV_BLOCK_TOKENS;
}

/* Kinds, and blocks of each per unit. A shorter sequence may need fewer kinds; windows that leave no room for other
 * blocks are not used. */
static void choose_kinds(struct limits *l, size_t per[KV_KINDS], const struct model_config *m, int n_ranks, size_t unit,
                         size_t useful, enum dtype act)
{
    for (int32_t before = 0; before != l->max_len;) {
        int64_t all = (int64_t)l->max_seqs * limits_blocks_per_slot(l);
        before = l->max_len;
        l->n_blocks = all < INT32_MAX ? (int32_t)all : INT32_MAX;
        fit_kinds(l, m);
        count_blocks(per, l, m, n_ranks, unit, act);
        if (limits_kinds(l) > 1 && (per[KV_WINDOWED] == 0 || units_of_windows(l, per) >= useful)) {
            l->window = l->n_window_blocks = 0;
            count_blocks(per, l, m, n_ranks, unit, act);
        }
        size_t longest = longest_in(l, per, useful);
        if (longest > 0 && longest < (size_t)l->max_len)
            l->max_len = (int32_t)longest;
    }
}

int fit_share(const struct model_config *m, const struct checkpoint *c, struct limits *l, int n_ranks,
              const struct ops *ops, size_t kv_bytes, struct kv_share *share, struct err *e)
{
    enum dtype act = ops->act_type(m->dtype);
    size_t unit = kv_arena_unit_bytes(kv_bytes), n_units = kv_bytes / unit, weights = most_weights(m, c, n_ranks, e);
    size_t useful = (weights > KV_USEFUL ? weights : KV_USEFUL) / unit, per[KV_KINDS] = {0};
    if (e->code != ERR_NONE)
        return -1;
    useful = useful < 1 ? 1 : useful < n_units ? useful : n_units;
    choose_kinds(l, per, m, n_ranks, unit, useful, act);
    if (per[KV_MAIN] == 0)
        return ERR(e, ERR_MEMORY,
                   "keys and values of %d tokens do not fit into a unit of %zu bytes; models share %zu bytes "
                   "(--kv-cache-memory-bytes) in units of a hundredth of that",
                   KV_BLOCK_TOKENS, unit, kv_bytes);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        size_t least = units_for(blocks_of_one(l, kind), per[kind]);
        size_t all = units_for(limits_blocks(l, kind), per[kind]);
        if (!are_countable(m, act, kv_bytes, n_units * per[kind]))
            return ERR(e, ERR_UNSUPPORTED,
                       "%zu bytes for keys and values of all models are too many to count blocks in", kv_bytes);
        all = all > least ? all : least;
        share[kind] = (struct kv_share){(int)per[kind], (int)least, (int)(all < n_units ? all : n_units)};
    }
    l->n_blocks = share[KV_MAIN].most * share[KV_MAIN].per_unit;
    l->n_window_blocks = share[KV_WINDOWED].most * share[KV_WINDOWED].per_unit;
    return 0;
}

int fit_check(const struct fit_part *part, int n_parts, const struct world *w, const struct ops *ops, struct queue *q,
              int64_t kv_bytes, struct err *e)
{
    const struct limits *l = &part[0].limits;
    size_t block[KV_KINDS], loading, weights = weights_of_all(part, n_parts, ops, &loading, e);
    block_bytes(part, n_parts, block);
    unsigned long long mine[5] = {weights, working_of_all(part, n_parts, ops, e), least_bytes(l, block, kv_bytes),
                                  sum_bytes(l, block), loading};
    unsigned long long all[5] = {mine[0], mine[1], mine[2], mine[3], mine[4]};
    if (ops->shares_host_memory)
        MPI_CHECK(MPI_Allreduce(mine, all, 5, MPI_UNSIGNED_LONG_LONG, MPI_SUM, w->node));
    const char *limit;
    size_t available = fit_free_memory(ops, q, w->n_node_ranks, &limit);
    const struct fit f = {.weights = all[0],
                          .working = all[1],
                          .kv_least = all[2],
                          .kv_wanted = all[3],
                          .loading = all[4],
                          .available = available,
                          .limit = limit};
    for (int i = 0; i < n_parts && e->code == ERR_NONE; i++)
        (void)fit_heads(part[i].model, ops, e);
    if (e->code == ERR_NONE)
        (void)fit_judge(&f, ops->shares_host_memory, e);
    return e->code == ERR_NONE ? 0 : -1;
}

size_t fit_free_memory(const struct ops *ops, struct queue *q, int n_node_ranks, const char **limit)
{
    size_t available = ops->free_memory(q);
    *limit = NULL;
    if (!ops->shares_host_memory)
        return available;
    const struct memory_limit l = memory_limit_read("/proc/self", "/sys/fs/cgroup", n_node_ranks);
    if (l.by == NULL || (available > 0 && l.rest >= available))
        return available;
    *limit = l.by;
    return l.rest > 0 ? l.rest : 1;
}

size_t fit_kv_part(size_t available, size_t working, bool host)
{
    size_t rest = available > working ? available - working : 0, most = available / 2;
    if (!host) {
        size_t spare = rest / 8 > SPARE ? rest / 8 : SPARE; /* graphs, NCCL, modules of the driver */
        most = rest > 2 * spare ? rest - spare : rest / 2;
    }
    return rest < most ? rest : most;
}

int fit_kv(struct limits *l, const struct fit_part *part, int n_parts, const struct world *w, const struct ops *ops,
           struct queue *q, int64_t kv_bytes, struct err *e)
{
    size_t block[KV_KINDS];
    block_bytes(part, n_parts, block);
    size_t working = working_of_all(part, n_parts, ops, e);
    size_t available = (size_t)kv_bytes;
    const char *limit = NULL;
    if (kv_bytes < 0) {
        size_t share =
            fit_free_memory(ops, q, w->n_node_ranks, &limit) / (ops->shares_host_memory ? (size_t)w->n_node_ranks : 1);
        available = fit_kv_part(share, working, ops->shares_host_memory);
    }
    bool two = limits_kinds(l) > 1;
    fit_divide(l, block, available);
    int mine[KV_KINDS] = {l->n_blocks, l->n_window_blocks}, all[KV_KINDS];
    MPI_CHECK(MPI_Allreduce(mine, all, KV_KINDS, MPI_INT, MPI_MIN, w->comm));
    l->n_blocks = all[KV_MAIN];
    l->n_window_blocks = all[KV_WINDOWED];
    if (mine[KV_MAIN] < 1 || (two && mine[KV_WINDOWED] < 1))
        return ERR(e, ERR_MEMORY, "KV cache: 16 tokens need %zu bytes on this rank, %zu are available%s",
                   block[KV_MAIN] + block[KV_WINDOWED], available, kv_bytes >= 0 ? " (--kv-cache-memory-bytes)" : "");
    return e->code == ERR_NONE ? 0 : -1;
}
