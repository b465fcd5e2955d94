/* tests/unit/test_scheduler_prefix.c - coordinator/schedule/scheduler.c and its blocks, the prefix cache: prefixes that
 * are found again, evicted, and never shared. */
#include "tests/unit/unit.h"

#include "tests/support/schedule.h"
#include "tests/unit/letters.h"

/* A repeated prompt of 48 tokens: two blocks are found, and the last one is fed since its logits are wanted. */
static void a_prompt_is_found_again(void **state)
{
    (void)state;
    struct scheduler_setup setup = schedule_setup(4, 64, 20);
    struct schedule run;
    schedule_open(&run, &setup);
    struct request *a = schedule_add(&run, &schedule_plain, 48, 7), *b = schedule_add(&run, &schedule_plain, 48, 7);
    schedule_step(&run, 0);
    assert_int_equal(a->n_cached, 0);
    assert_int_equal(b->n_cached, 0); /* within the same plan nothing is cached yet */
    struct request *c = schedule_add(&run, &schedule_plain, 48, 7), *d = schedule_add(&run, &schedule_plain, 49, 7);
    schedule_step(&run, 0);
    assert_int_equal(c->n_cached, 32);
    assert_int_equal(c->held[KV_MAIN].block[1], a->held[KV_MAIN].block[1]);
    assert_int_equal(d->n_cached, 48);
    assert_int_equal(run.s.stats.prefix_queries, 48 + 48 + 48 + 49);
    assert_int_equal(run.s.stats.prefix_hits, 32 + 48);
    schedule_drain(&run, 0);
    struct request *later = schedule_add(&run, &schedule_plain, 49, 7); /* the blocks no longer have a holder */
    schedule_step(&run, 0);
    assert_int_equal(later->n_cached, 48);
    schedule_drain(&run, 0);
    schedule_close(&run);
}

#define LONG_PROMPT 300

/* Adds a request of LONG_PROMPT tokens, the first n_common of which follow from the seed, the others from its
 * number. */
static void add_long(struct schedule *run, int n_common, uint64_t seed)
{
    struct err e = {0};
    int32_t prompt[LONG_PROMPT];
    uint64_t own = 1000 + (uint64_t)run->n;
    for (int i = 0; i < LONG_PROMPT; i++)
        prompt[i] = random_below(i < n_common ? &seed : &own, N_LETTERS);
    assert_int_equal(scheduler_add(&run->s, schedule_make(run, &schedule_plain, prompt, LONG_PROMPT), run->now, &e), 0);
}

/* Runs n requests, the first of which is a step ahead; tells whether a plan in which all feed one token reports
 * sharing. */
static int shares(int n, int n_common)
{
    struct scheduler_setup setup = schedule_setup(24, 24 * LONG_PROMPT, 250);
    struct schedule run;
    setup.limits.max_len = LONG_PROMPT + SCHEDULE_MAX_OUTPUT;
    schedule_open(&run, &setup);
    add_long(&run, n_common, 7);
    schedule_step(&run, 0);
    assert_int_equal(run.plan.shares, 0);
    for (int i = 1; i < n; i++)
        add_long(&run, n_common, 7);
    schedule_step(&run, 0);
    schedule_step(&run, 0);
    assert_int_equal(run.plan.n_tokens, n);
    int said = run.plan.shares;
    schedule_drain(&run, 0);
    schedule_close(&run);
    return said;
}

/* The ranks look for shared beginnings if more than a few sequences share 256 tokens or more. */
static void plans_say_that_sequences_share(void **state)
{
    (void)state;
    assert_int_equal(shares(24, 256), 1);
    assert_int_equal(shares(17, 280), 1);
    assert_int_equal(shares(16, 280), 0);
    assert_int_equal(shares(24, 240), 0);
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

/* Rotations that change with the length: longer sequences do not share. */
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
        cmocka_unit_test(plans_say_that_sequences_share),
        cmocka_unit_test(a_prompt_is_found_again),
        cmocka_unit_test(old_blocks_are_evicted),
        cmocka_unit_test(long_rotations_are_not_shared),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
