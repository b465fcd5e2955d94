/* tests/unit/test_scheduler_prefix.c - coordinator/schedule/scheduler.c and its blocks, the prefix cache: what is found
 * again, given up, and never shared. */
#include "tests/unit/unit.h"

#include "tests/support/schedule.h"

/* 48 tokens of prompt that come again: two blocks are found, and the last one is fed since its logits are wanted. */
static void a_prompt_is_found_again(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(4, 64, 20);
    struct schedule run;
    schedule_open(&run, &setup);
    struct request *a = schedule_add(&run, &schedule_plain, 48, 7), *b = schedule_add(&run, &schedule_plain, 48, 7);
    schedule_step(&run, 0);
    assert_int_equal(a->n_cached, 0);
    assert_int_equal(b->n_cached, 0); /* in the same plan nothing is there yet */
    struct request *c = schedule_add(&run, &schedule_plain, 48, 7), *d = schedule_add(&run, &schedule_plain, 49, 7);
    schedule_step(&run, 0);
    assert_int_equal(c->n_cached, 32);
    assert_int_equal(c->held[KV_MAIN].block[1], a->held[KV_MAIN].block[1]);
    assert_int_equal(d->n_cached, 48);
    assert_int_equal(run.s.stats.prefix_queries, 48 + 48 + 48 + 49);
    assert_int_equal(run.s.stats.prefix_hits, 32 + 48);
    schedule_drain(&run, 0);
    struct request *later = schedule_add(&run, &schedule_plain, 49, 7); /* nobody holds them any more */
    schedule_step(&run, 0);
    assert_int_equal(later->n_cached, 48);
    schedule_drain(&run, 0);
    schedule_close(&run);
}

/* The least recently used block is reused first. */
static void old_blocks_are_evicted(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(1, 64, 7);
    struct request_rules one = schedule_plain;
    struct schedule run;
    one.max_tokens = 1;
    schedule_open(&run, &setup);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        schedule_add(&run, &one, 49, seed); /* 4 blocks, 3 of them full */
        schedule_drain(&run, 0);
    }
    static const struct {
        uint64_t seed;
        int cached;
    } round[] = {{1, 48}, {3, 0}, {1, 48}, {2, 0}, {3, 0}};
    for (size_t i = 0; i < sizeof round / sizeof round[0]; i++) {
        uint64_t hits = run.s.stats.prefix_hits;
        schedule_add(&run, &one, 49, round[i].seed);
        schedule_drain(&run, 0);
        if (run.s.stats.prefix_hits - hits != (uint64_t)round[i].cached)
            fail_msg("round %zu: %d tokens from the cache, expected %d", i, (int)(run.s.stats.prefix_hits - hits),
                     round[i].cached);
    }
    schedule_close(&run);
}

/* Rotations that change with the length: longer sequences share nothing. */
static void long_rotations_are_not_shared(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(1, 64, 20);
    struct schedule run;
    setup.rope_changes_at = 40;
    schedule_open(&run, &setup);
    static const struct {
        int n, cached;
    } round[] = {{40, 0}, {40, 32}, {41, 0}, {41, 0}, {38, 32}};
    for (size_t i = 0; i < sizeof round / sizeof round[0]; i++) {
        struct request *r = schedule_add(&run, &schedule_plain, round[i].n, 5);
        schedule_step(&run, 0);
        assert_int_equal(r->n_cached, round[i].cached);
        schedule_drain(&run, 0);
    }
    schedule_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_found_again),
        cmocka_unit_test(old_blocks_are_evicted),
        cmocka_unit_test(long_rotations_are_not_shared),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
