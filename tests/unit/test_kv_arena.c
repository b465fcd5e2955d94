/* tests/unit/test_kv_arena.c - rank/model/kv_arena.c: every block of a model is inside its unit, in all layers, and no
 * two share a byte, whatever the shapes and the distribution of heads; a unit is cleared only when it goes to another
 * model. */
#include "rank/model/network.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#define UNIT   KV_UNIT_LEAST
#define WINDOW 20 /* tokens */

/* Sets the fields that matter here. */
static struct model_config make_config(int n_layers, int n_kv_heads, int head_dim)
{
    return (struct model_config){.n_layers = n_layers,
                                 .n_heads = 2 * n_kv_heads,
                                 .n_kv_heads = n_kv_heads,
                                 .head_dim = head_dim,
                                 .hidden = 64,
                                 .ffn = 64,
                                 .vocab = 64};
}

/* Marks the bytes of a block in all caches; each was free, and is in the block's unit. */
static void mark(const struct network *n, const struct kv_arena *a, unsigned char *used, enum kv_kind kind, int block,
                 size_t part)
{
    struct queue none = {.act = DTYPE_F32};
    const struct ops *no_ops = NULL;
    int unit = block / n->blocks[kind].per_unit;
    a->user[unit] = 7; /* so that nothing is cleared */
    int32_t at = network_find_block((struct network *)n, kind, block, 7, no_ops, &none);
    for (int l = 0; l < n->config.n_layers; l++)
        for (int v = 0; v < 2 && network_kv_kind(n, l) == kind; v++) {
            const char *cache = v == 0 ? n->k_cache[l] : n->v_cache[l];
            size_t first = (size_t)(cache - a->base) + (size_t)at * part;
            assert_true(first >= (size_t)unit * a->unit_bytes && first + part <= (size_t)(unit + 1) * a->unit_bytes);
            for (size_t i = first; i < first + part; i++)
                assert_int_equal(used[i]++, 0);
        }
}

/* Each unit has blocks of one kind: the second one of windows, if every second layer has one. */
static void blocks_are_apart(int n_layers, int n_kv_heads, int head_dim, int n_ranks, bool windows)
{
    enum { UNITS = 3 };
    struct err e = {0};
    struct model_config m = make_config(n_layers, n_kv_heads, head_dim);
    struct queue q = {.act = DTYPE_F32};
    int user[UNITS], per_unit[KV_KINDS] = {0}, window = windows ? WINDOW : 0;
    for (int i = 1; i < n_layers && windows; i += 2)
        m.layer[i].window = WINDOW;
    for (int kind = 0; kind <= (int)windows; kind++)
        per_unit[kind] = kv_arena_per_unit(UNIT, &m, n_ranks, window, (enum kv_kind)kind, DTYPE_F32);
    char *base = malloc(UNITS * UNIT);
    struct kv_arena a = {.base = base, .unit_bytes = UNIT, .n_units = UNITS, .user = user};
    for (int r = 0; r < n_ranks; r++) {
        struct network n = {.config = m};
        shard_make(&n.shard, &m, r, n_ranks);
        size_t part = (size_t)range_length(n.shard.kv_heads) * KV_BLOCK_TOKENS * (size_t)head_dim * sizeof(float);
        if (part == 0)
            continue;
        unsigned char *used = calloc(1, UNITS * UNIT);
        assert_true(per_unit[KV_MAIN] > 0 && (per_unit[KV_WINDOWED] > 0) == windows);
        assert_int_equal(network_share_kv(&n, &a, per_unit, window, &q, &e), 0);
        for (int unit = 0; unit < UNITS; unit++) {
            enum kv_kind kind = windows && unit == 1 ? KV_WINDOWED : KV_MAIN;
            for (int block = unit * per_unit[kind]; block < (unit + 1) * per_unit[kind]; block++)
                mark(&n, &a, used, kind, block, part);
        }
        free(used);
        free(n.k_cache);
        free(n.v_cache);
    }
    free(base);
}

static void every_shape(void **state)
{
    static const int dims[] = {6, 8, 10, 20, 64};
    (void)state;
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (int layers = 1; layers <= 4; layers += 1)
            for (int heads = 1; heads <= 3; heads++)
                for (int ranks = 1; ranks <= 8; ranks++)
                    if ((size_t)(2 * layers * heads * dims[d] * 64) < UNIT - (size_t)(heads * dims[d] * 64))
                        for (int windows = 0; windows <= (int)(layers > 1); windows++)
                            blocks_are_apart(layers, heads, dims[d], ranks, windows != 0);
}

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(kv_arena_unit_bytes(1), UNIT);
    assert_int_equal(kv_arena_unit_bytes(128 * UNIT), UNIT);
    assert_int_equal(kv_arena_unit_bytes(256 * UNIT - 1), UNIT);
    assert_int_equal(kv_arena_unit_bytes(256 * UNIT), 2 * UNIT);
    assert_int_equal(kv_arena_units((size_t)55 << 30), 220);
    const struct model_config m = make_config(2, 2, 128); /* a block is a unit */
    assert_int_equal(kv_arena_per_unit(UNIT, &m, 1, 0, KV_MAIN, DTYPE_F32), 1);
    assert_int_equal(kv_arena_per_unit(UNIT / 2, &m, 1, 0, KV_MAIN, DTYPE_F32), 0);
    assert_int_equal(kv_arena_per_unit(UNIT / 2, &m, 2, 0, KV_MAIN, DTYPE_F32), 1);
    assert_int_equal(kv_arena_per_unit(UNIT, &m, 1, 0, KV_MAIN, DTYPE_BF16), 2);
    const struct model_config odd = make_config(1, 1, 24); /* parts of 1536 bytes do not divide a unit */
    assert_int_equal(kv_arena_per_unit(UNIT, &odd, 1, 0, KV_MAIN, DTYPE_F32), (UNIT - 1536) / 3072);
}

static bool is(const char *p, char value)
{
    for (size_t i = 0; i < UNIT; i++)
        if (p[i] != value)
            return false;
    return true;
}

static void cleared_for_another_model(void **state)
{
    struct kv_arena a;
    struct queue q = {.n_threads = 1};
    struct err e = {0};
    (void)state;
    assert_int_equal(kv_arena_open(&a, 3 * UNIT + 5, &ops_cpu, &q, &e), 0);
    assert_int_equal(a.n_units, 3);
    kv_arena_claim(&a, 1, 4, &ops_cpu, &q);
    memset(a.base, 9, 3 * UNIT);
    kv_arena_claim(&a, 1, 4, &ops_cpu, &q);
    assert_true(is(a.base + UNIT, 9)); /* the same user: its cached blocks stay */
    kv_arena_claim(&a, 1, 5, &ops_cpu, &q);
    assert_true(is(a.base, 9) && is(a.base + UNIT, 0) && is(a.base + 2 * UNIT, 9));
    memset(a.base, 9, 3 * UNIT);
    kv_arena_forget(&a, 5);
    kv_arena_claim(&a, 1, 5, &ops_cpu, &q); /* another model with that number */
    assert_true(is(a.base + UNIT, 0));
    kv_arena_close(&a, &ops_cpu, &q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape),
        cmocka_unit_test(sizes),
        cmocka_unit_test(cleared_for_another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
