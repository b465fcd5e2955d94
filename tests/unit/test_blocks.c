/* tests/unit/test_blocks.c - coordinator/schedule/blocks.c: lookups return what was inserted, even if hashes collide;
 * the holders of blocks; the order of reuse. */
#include "tests/unit/unit.h"

#include "coordinator/schedule/blocks.h"

#define N 500 /* blocks, in 512 buckets: many share one */

static void fill(int32_t token[KV_BLOCK_TOKENS], int value)
{
    for (int i = 0; i < KV_BLOCK_TOKENS; i++)
        token[i] = value;
}

/* The same tokens after different blocks, and different tokens after the same one. */
static void finds_exactly_what_is_there(void **state)
{
    (void)state;
    struct blocks b;
    struct err e = {0};
    int block[N];
    int32_t token[KV_BLOCK_TOKENS];
    assert_int_equal(blocks_open(&b, N, &e), 0);
    uint64_t family[N / 2];
    for (int i = 0; i < N; i++) {
        block[i] = blocks_take(&b);
        if (i < N / 2)
            family[i] = blocks_name(&b);
        fill(token, i < N / 2 ? 7 : i);
        uint64_t before = i < N / 2 ? family[i] : 0;
        assert_int_equal(blocks_find(&b, before, token, 9), -1);
        assert_true(blocks_share(&b, block[i], before, token, 1) != 0);
    }
    assert_int_equal(blocks_take(&b), -1);
    for (int i = 0; i < N; i++) {
        fill(token, i < N / 2 ? 7 : i);
        assert_int_equal(blocks_find(&b, i < N / 2 ? family[i] : 0, token, 2), block[i]);
        assert_int_equal(blocks_find(&b, i < N / 2 ? family[i] : 0, token, 1), -1); /* not filled yet */
        token[KV_BLOCK_TOKENS - 1]++;
        assert_int_equal(blocks_find(&b, i < N / 2 ? family[i] : 0, token, 2), -1);
    }
    blocks_close(&b);
}

static void an_equal_block_stays_outside(void **state)
{
    (void)state;
    struct blocks b;
    struct err e = {0};
    int32_t token[KV_BLOCK_TOKENS];
    fill(token, 3);
    assert_int_equal(blocks_open(&b, 4, &e), 0);
    int first = blocks_take(&b), second = blocks_take(&b);
    uint64_t name = blocks_share(&b, first, 0, token, 1);
    assert_true(blocks_share(&b, second, 0, token, 2) == name);
    assert_int_equal(blocks_find(&b, 0, token, 5), first);
    blocks_give_back(&b, second); /* it has no content to keep, so it is the next one taken */
    blocks_give_back(&b, first);
    assert_int_equal(b.n_free, 4);
    assert_int_equal(blocks_take(&b), second);
    assert_int_equal(blocks_find(&b, 0, token, 5), first);
    blocks_close(&b);
}

/* A block held twice and given back twice stays until no blank one is left and all older ones are gone. */
static void the_oldest_is_taken(void **state)
{
    (void)state;
    struct blocks b;
    struct err e = {0};
    int32_t token[KV_BLOCK_TOKENS];
    int block[3];
    assert_int_equal(blocks_open(&b, 4, &e), 0);
    for (int i = 0; i < 3; i++) {
        block[i] = blocks_take(&b);
        fill(token, i);
        (void)blocks_share(&b, block[i], 0, token, 1);
    }
    blocks_hold(&b, block[0]);
    for (int i = 0; i < 3; i++)
        blocks_give_back(&b, block[i]);
    assert_int_equal(b.n_free, 3); /* block 0 is still held */
    blocks_give_back(&b, block[0]);
    assert_int_equal(b.n_free, 4);
    blocks_hold(&b, block[1]); /* found again */
    blocks_give_back(&b, block[1]);
    static const int order[] = {2, 0, 1};
    assert_false(blocks_take(&b) == block[2]); /* the blank one */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(blocks_take(&b), block[order[i]]);
        fill(token, order[i]);
        assert_int_equal(blocks_find(&b, 0, token, 5), -1);
    }
    assert_int_equal(blocks_take(&b), -1);
    blocks_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_exactly_what_is_there),
        cmocka_unit_test(an_equal_block_stays_outside),
        cmocka_unit_test(the_oldest_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
