/* tests/unit/test_scheduler_growth.c - sequences start when there is memory for what they and the running ones are
 * expected to become (scheduler_setup.foresees): the expectations, and what follows from them. */
#include "coordinator/schedule/lengths.h"
#include "tests/support/schedule.h"
#include "tests/unit/letters.h"
#include "tests/unit/unit.h"

static void lengths_are_learned(void **state)
{
    (void)state;
    struct lengths l;
    lengths_begin(&l);
    assert_int_equal(lengths_left(&l, 0, 1000, false), 1000);
    assert_int_equal(lengths_left(&l, 400, 1000, false), 600);
    assert_int_equal(lengths_left(&l, 1000, 1000, false), 0);
    assert_int_equal(lengths_left(&l, 0, 100000, false), 4096);
    assert_int_equal(lengths_left(&l, 8000, 100000, false), 2000);
    assert_int_equal(lengths_left(&l, 0, 100000, true), 512);
    assert_int_equal(lengths_left(&l, 0, 100, true), 100); /* the context has room for no more */
    for (int i = 0; i < 3000; i++) {
        lengths_note(&l, 1000, 4000, false);
        lengths_note(&l, 2048, 100000, true);
    }
    assert_in_range(lengths_left(&l, 0, 4000, false), 995, 1005);
    assert_in_range(lengths_left(&l, 0, 100000, true), 2043, 2048);
    assert_int_equal(lengths_left(&l, 2000, 4000, false), 500); /* longer than expected */
    assert_int_equal(lengths_left(&l, 3800, 4000, false), 200);
    for (int i = 0; i < 3000; i++)
        lengths_note(&l, 1, 4, false);
    assert_in_range(lengths_left(&l, 0, 4000, false), 995, 1005); /* small limits say nothing about large ones */
    assert_int_equal(lengths_left(&l, 0, 4, false), 1);
    assert_int_equal(lengths_left(&l, 1, 2, false), 1);
    for (int i = 0; i < 3000; i++)
        lengths_note(&l, 4000, 4000, false);
    assert_in_range(lengths_left(&l, 0, 4000, false), 3990, 4000); /* the newest count */
}

/* The first answers that end are the short ones, so they are not believed at once; some hundred are. */
static void the_first_answers_say_little(void **state)
{
    (void)state;
    struct lengths l;
    lengths_begin(&l);
    for (int i = 0; i < 8; i++)
        lengths_note(&l, 10, 1000, false);
    assert_in_range(lengths_left(&l, 0, 1000, false), 750, 850);
    for (int i = 0; i < 200; i++)
        lengths_note(&l, 10, 1000, false);
    assert_in_range(lengths_left(&l, 0, 1000, false), 80, 160);
}

/* 40 requests that become 5 blocks each, in memory for 8 of them. */
static void run_all(bool foresees, int64_t *n_fed, uint64_t *n_preempted)
{
    struct schedule run;
    struct scheduler_setup setup = schedule_setup(40, 512, 40);
    struct request_rules rules = schedule_plain;
    rules.max_tokens = 60;
    setup.foresees = foresees;
    setup.prefix_caching = false;
    schedule_open(&run, &setup);
    for (int i = 0; i < 40; i++)
        (void)schedule_add(&run, &rules, 14, (uint64_t)i);
    schedule_drain(&run, 1);
    *n_fed = (int64_t)run.device.n_fed;
    *n_preempted = run.s.stats.n_preemptions;
    schedule_close(&run);
}

/* So nothing is computed twice. */
static void nobody_is_preempted(void **state)
{
    (void)state;
    int64_t fed[2];
    uint64_t preempted[2];
    for (int foresees = 0; foresees < 2; foresees++)
        run_all(foresees != 0, &fed[foresees], &preempted[foresees]);
    print_message("# %lld tokens, %llu preemptions; with foresight %lld, %llu\n", (long long)fed[0],
                  (unsigned long long)preempted[0], (long long)fed[1], (unsigned long long)preempted[1]);
    assert_true(preempted[0] > 20 && fed[0] > 40 * (14 + 59));
    assert_int_equal(preempted[1], 0);
    assert_int_equal(fed[1], 40 * (14 + 59)); /* the last token is not fed */
}

/* 12 sequences that become 5 blocks each, in 60 blocks. */
static void all_start_where_all_fit(void **state)
{
    (void)state;
    struct schedule run;
    struct scheduler_setup setup = schedule_setup(12, 512, 60);
    struct request_rules rules = schedule_plain;
    rules.max_tokens = 60;
    setup.foresees = true;
    schedule_open(&run, &setup);
    for (int i = 0; i < 12; i++)
        (void)schedule_add(&run, &rules, 18, (uint64_t)i);
    schedule_step(&run, 0);
    assert_int_equal(run.s.n_running, 12);
    schedule_drain(&run, 0);
    assert_int_equal(run.s.stats.n_preemptions, 0);
    schedule_close(&run);
}

/* 8 blocks. The first sequence will take 5 of them (14 + 60 tokens), the second one, too: it can only start when the
 * first one is about to end before both have grown that far. */
static void memory_of_those_that_end_counts(void **state)
{
    (void)state;
    struct schedule run;
    struct scheduler_setup setup = schedule_setup(4, 64, 8);
    struct request_rules rules = schedule_plain;
    rules.max_tokens = 60;
    setup.foresees = true;
    setup.prefix_caching = false;
    schedule_open(&run, &setup);
    const struct request *first = schedule_add(&run, &rules, 14, 1);
    const struct request *second = schedule_add(&run, &rules, 14, 2);
    while (second->state == REQUEST_WAITING)
        schedule_step(&run, 0);
    print_message("# the second one starts when the first one has %d of 60 tokens\n", (int)first->output.n);
    assert_in_range(first->output.n, 5, 40);
    schedule_drain(&run, 0);
    assert_int_equal(run.s.stats.n_preemptions, 0);
    schedule_close(&run);
}

/* The most that run at once, of 20 requests that may become 5 blocks in 20 blocks. */
static int most_at_once(struct schedule *run, const struct request_rules *rules)
{
    int most = 0;
    for (int i = 0; i < 20; i++)
        (void)schedule_add(run, rules, 14, (uint64_t)i);
    for (int released = run->n_released; run->n_released < released + 20;) {
        schedule_step(run, 1);
        most = run->s.n_running > most ? run->s.n_running : most;
    }
    return most;
}

/* Answers that end early leave room for more of their kind. */
static void short_answers_let_more_start(void **state)
{
    (void)state;
    struct schedule run;
    struct scheduler_setup setup = schedule_setup(20, 512, 20);
    struct request_rules rules = schedule_plain;
    rules.max_tokens = 60;
    setup.foresees = true;
    setup.prefix_caching = false;
    rules.stop_id[rules.n_stop_ids++] = LETTER_EOS;
    schedule_open(&run, &setup);
    for (int i = 0; i < 300; i++)
        lengths_note(&run.s.lengths, 60, 60, false);
    const int before = most_at_once(&run, &rules);
    const struct length_mean *mean = &run.s.lengths.share[5]; /* of 32 to 63 tokens */
    const double share = mean->sum / mean->weight;
    for (int i = 0; i < 2000; i++)
        lengths_note(&run.s.lengths, 10, 60, false);
    const int after = most_at_once(&run, &rules);
    print_message("# %d at once, of which answers take %.2f of max_tokens; %d when 0.17 are expected\n", before, share,
                  after);
    assert_true(share < 1); /* it has learned from those that ended */
    assert_true(after > before);
    schedule_close(&run);
}

/* A prompt of 4 blocks that the first sequence computes and the others find; it ends long before them. None of these
 * blocks is free then. */
static void shared_blocks_stay_taken(void **state)
{
    (void)state;
    struct schedule run;
    struct scheduler_setup setup = schedule_setup(20, 512, 40);
    struct request_rules rules = schedule_plain;
    int32_t prompt[64];
    setup.foresees = true;
    schedule_open(&run, &setup);
    for (int i = 0; i < 64; i++)
        prompt[i] = i % 3;
    for (int i = 0; i < 20; i++) {
        struct err e = {0};
        rules.max_tokens = i == 0 ? 20 : 60;
        assert_int_equal(scheduler_add(&run.s, schedule_make(&run, &rules, prompt, 64), 0, &e), 0);
        schedule_step(&run, 0);
    }
    assert_true(run.s.n_running >= 6); /* 4 shared blocks, 4 of each one's own */
    schedule_drain(&run, 0);
    assert_int_equal(run.s.stats.n_preemptions, 0);
    schedule_close(&run);
}

/* Nobody is preempted if all answers are as long as expected, whatever they share, and whenever they come. */
static void random_requests_are_not_preempted(void **state)
{
    (void)state;
    uint64_t seed = 3, found = 0;
    int most = 0;
    for (int trial = 0; trial < 300; trial++) {
        struct schedule run;
        struct scheduler_setup setup = schedule_setup(20, 2048, 12 + random_below(&seed, 40));
        struct request_rules rules = schedule_plain;
        const int depth = random_below(&seed, SCHEDULER_FLIGHTS);
        setup.foresees = true;
        schedule_open(&run, &setup);
        while (run.n < SCHEDULE_MAX_REQUESTS) {
            uint64_t text = (uint64_t)random_below(&seed, 2);
            rules.max_tokens = 1 + random_below(&seed, 60);
            (void)schedule_add(&run, &rules, 1 + random_below(&seed, 70), text);
            for (int i = random_below(&seed, 8); i > 0; i--)
                schedule_step(&run, depth);
            most = run.s.n_running > most ? run.s.n_running : most;
        }
        schedule_drain(&run, depth);
        assert_int_equal(run.s.stats.n_preemptions, 0);
        found += run.s.stats.prefix_hits;
        schedule_close(&run);
    }
    print_message("# at most %d at once, %llu tokens found\n", most, (unsigned long long)found);
    assert_true(most >= 8 && found > 10000);
}

/* All layers have a window of 48 tokens: a sequence grows until it fills it. */
static void windows_are_foreseen(void **state)
{
    (void)state;
    struct schedule run;
    struct scheduler_setup setup = schedule_setup(40, 512, 30);
    struct request_rules rules = schedule_plain;
    setup.foresees = true;
    setup.limits.window = 48;
    rules.max_tokens = 60;
    schedule_open(&run, &setup);
    for (int i = 0; i < 40; i++)
        (void)schedule_add(&run, &rules, 14, (uint64_t)i);
    schedule_step(&run, 0);
    print_message("# %d at once with windows of %d blocks in 30\n", run.s.n_running, limits_window_blocks(48));
    assert_int_equal(run.s.n_running, 30 / limits_window_blocks(48));
    schedule_drain(&run, 0);
    assert_int_equal(run.s.stats.n_preemptions, 0);
    schedule_close(&run);
}

/* The blocks of less urgent sequences, which give way, count as free for an urgent request. */
static void urgent_requests_start(void **state)
{
    (void)state;
    for (int priority = 0; priority < 2; priority++) {
        struct schedule run;
        struct scheduler_setup setup = schedule_setup(12, 128, 44);
        struct request_rules rules = schedule_plain;
        struct err e = {0};
        int32_t prompt[14] = {1, 2, 3};
        rules.max_tokens = 60;
        setup.foresees = true;
        schedule_open(&run, &setup);
        for (int i = 0; i < 9; i++) {
            struct request *r = schedule_make(&run, &rules, prompt, 14);
            r->priority = i < 8 ? 1 : priority;
            assert_int_equal(scheduler_add(&run.s, r, 0, &e), 0);
            if (i == 7)
                schedule_step(&run, 1);
        }
        assert_int_equal(run.s.n_running, 8);
        schedule_step(&run, 1);
        assert_int_equal(run.s.n_running, priority == 0 ? 9 : 8);
        schedule_drain(&run, 1);
        schedule_close(&run);
    }
}

/* Another client's only request starts without leaving room for the growth of the first client's sequences. */
static void a_client_below_its_share_starts(void **state)
{
    (void)state;
    for (uint64_t client = 0; client < 2; client++) {
        struct schedule run;
        struct scheduler_setup setup = schedule_setup(12, 128, 20);
        struct request_rules rules = schedule_plain;
        struct err e = {0};
        int32_t prompt[14] = {1, 2, 3};
        rules.max_tokens = 60;
        setup.foresees = true;
        schedule_open(&run, &setup);
        for (int i = 0; i < 8; i++)
            (void)schedule_add(&run, &rules, 14, (uint64_t)i);
        for (int i = 0; i < 3; i++)
            schedule_step(&run, 1);
        assert_true(run.s.n_running >= 3 && run.s.n_running < 8 && run.s.n_free_slots > 0);
        struct request *other = schedule_make(&run, &rules, prompt, 14);
        other->client = client;
        assert_int_equal(scheduler_add(&run.s, other, run.now, &e), 0);
        schedule_step(&run, 1);
        assert_int_equal(other->state, client == 0 ? REQUEST_WAITING : REQUEST_RUNNING);
        schedule_drain(&run, 1);
        schedule_close(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_are_learned),
        cmocka_unit_test(the_first_answers_say_little),
        cmocka_unit_test(nobody_is_preempted),
        cmocka_unit_test(all_start_where_all_fit),
        cmocka_unit_test(memory_of_those_that_end_counts),
        cmocka_unit_test(shared_blocks_stay_taken),
        cmocka_unit_test(random_requests_are_not_preempted),
        cmocka_unit_test(windows_are_foreseen),
        cmocka_unit_test(urgent_requests_start),
        cmocka_unit_test(short_answers_let_more_start),
        cmocka_unit_test(a_client_below_its_share_starts),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
