/* tests/unit/test_shard.c - every unit is on exactly one rank, as evenly as possible, KV heads where they are
 * needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "partition/shard.h"

#include <string.h>

#define MAX_RANKS 16

static void units_cover_evenly(void **state)
{
    (void)state;
    for (int n = 0; n <= 130; n++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
            int at = 0, last = n;
            for (int rank = 0; rank < ranks; rank++) {
                struct range r = shard_units(n, rank, ranks);
                int length = range_length(r);
                assert_int_equal(r.begin, at);
                assert_true(length == n / ranks || length == n / ranks + 1);
                assert_true(rank == 0 || length <= last); /* the first ranks have one more */
                last = length;
                at = r.end;
            }
            assert_int_equal(at, n);
        }
}

static void units_of_28_heads(void **state)
{
    (void)state;
    assert_int_equal(range_length(shard_units(28, 0, 3)), 10);
    assert_int_equal(range_length(shard_units(28, 1, 3)), 9);
    assert_int_equal(range_length(shard_units(28, 2, 3)), 9);
    assert_int_equal(range_length(shard_units(4, 5, 8)), 0);
    assert_int_equal(shard_units(2147483647, 7, 8).end, 2147483647);
}

/* Returns the largest power of two <= 64 that leaves every rank 8 units. */
static int expected_unit(int n, int ranks)
{
    for (int unit = 64; unit > 1; unit /= 2)
        if (n / unit >= 8 * ranks)
            return unit;
    return 1;
}

static void check_columns(int n, int ranks)
{
    int at = 0, unit = expected_unit(n, ranks), least = n, most = 0;
    for (int rank = 0; rank < ranks; rank++) {
        struct range r = shard_columns(n, rank, ranks);
        assert_int_equal(r.begin, at);
        assert_true(r.end >= r.begin);
        assert_int_equal(r.begin % unit, 0);
        int units = range_length(r) / unit;
        least = units < least ? units : least;
        most = units > most ? units : most;
        at = r.end;
        if (rank < ranks - 1)
            assert_int_equal(r.end % unit, 0);
    }
    assert_int_equal(at, n);
    assert_true(most - least <= 1);
}

static void columns_cover_evenly(void **state)
{
    static const int sizes[] = {4864,  8960,   11008,  14336,  18944,  50257,
                                50272, 128256, 151936, 152064, 250880, 16777216};
    (void)state;
    for (int n = 1; n <= 2100; n++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++)
            check_columns(n, ranks);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++)
            check_columns(sizes[i], ranks);
}

static void columns_have_wide_units(void **state)
{
    (void)state;
    assert_int_equal(expected_unit(18944, 8), 64);
    assert_int_equal(range_length(shard_columns(18944, 0, 8)), 37 * 64);
    assert_int_equal(range_length(shard_columns(50257, 3, 4)),
                     50257 - 589 * 64); /* 785 units: 197, 196, 196, 196 + 17 */
    assert_int_equal(range_length(shard_columns(3, 2, 8)), 1);
    assert_int_equal(range_length(shard_columns(3, 3, 8)), 0);
}

static void kv_heads_are_those_read(void **state)
{
    static const struct {
        int heads, kv_heads;
    } table[] = {{28, 4}, {14, 2}, {12, 2}, {32, 8}, {64, 8}, {25, 25}, {71, 1}, {1, 1}, {16, 16}, {40, 8}, {6, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
            struct model_config m = {
                .n_heads = table[i].heads, .n_kv_heads = table[i].kv_heads, .ffn = 100, .vocab = 1000};
            int heads_per_kv = table[i].heads / table[i].kv_heads, heads = 0;
            for (int rank = 0; rank < ranks; rank++) {
                struct shard s;
                char read[80] = {0};
                shard_make(&s, &m, rank, ranks);
                assert_int_equal(s.rank, rank);
                assert_int_equal(s.n_ranks, ranks);
                for (int h = s.heads.begin; h < s.heads.end; h++)
                    read[h / heads_per_kv] = 1;
                for (int kv = 0; kv < m.n_kv_heads; kv++)
                    assert_int_equal(read[kv], kv >= s.kv_heads.begin && kv < s.kv_heads.end);
                if (range_length(s.heads) == 0)
                    assert_int_equal(range_length(s.kv_heads), 0);
                heads += range_length(s.heads);
            }
            assert_int_equal(heads, table[i].heads);
        }
}

/* Codes in blocks of 128 columns: whole blocks unless a rank would have more than a third above the mean. */
static void codes_keep_whole_blocks(void **state)
{
    static const struct {
        int n, ranks, columns[8];
    } table[] = {{768, 1, {768}},
                 {768, 2, {384, 384}},
                 {768, 4, {256, 256, 128, 128}},
                 {768, 5, {160, 160, 160, 144, 144}},
                 {768, 8, {96, 96, 96, 96, 96, 96, 96, 96}},
                 {1600, 4, {384, 384, 384, 448}}, /* 12.5 blocks */
                 {14336, 8, {1792, 1792, 1792, 1792, 1792, 1792, 1792, 1792}}};
    (void)state;
    struct model_config m = {.n_heads = 8, .n_kv_heads = 8, .ffn = 64, .vocab = 1000};
    m.quantization.format = FORMAT_FP8;
    m.quantization.block_rows = m.quantization.block_cols = 128;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        m.experts.ffn = table[i].n;
        int at = 0;
        for (int rank = 0; rank < table[i].ranks; rank++) {
            struct shard s;
            shard_make(&s, &m, rank, table[i].ranks);
            assert_int_equal(s.expert_ffn.begin, at);
            assert_int_equal(range_length(s.expert_ffn), table[i].columns[rank]);
            at = s.expert_ffn.end;
        }
        assert_int_equal(at, table[i].n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_cover_evenly),      cmocka_unit_test(units_of_28_heads),
        cmocka_unit_test(columns_cover_evenly),    cmocka_unit_test(columns_have_wide_units),
        cmocka_unit_test(kv_heads_are_those_read), cmocka_unit_test(codes_keep_whole_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
