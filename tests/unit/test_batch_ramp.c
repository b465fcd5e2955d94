/* tests/unit/test_batch_ramp.c - coordinator/batch/ramp.c with a paper replica: every run of a requeued job makes
 * progress, and a long job loses nothing. */
#include "tests/unit/unit.h"

#include "coordinator/batch/ramp.h"

#define MAX_SEQS 256
#define PROMPT   20.0

/* A replica whose steps take `step` seconds, `sequence` for each sequence and `prompt` for each token of prompts. From
 * `late` on everything takes `slower` times as long. */
struct paper_engine {
    double step, sequence, prompt, late, slower;
};

/* A run on some replicas of n lines of this many tokens, until the walltime: returns the number of finished lines.
 * *seconds: until then, or until all were finished. all: every request begins as soon as there is room, whatever the
 * time. */
static int run_share(const struct paper_engine *g, int n, int tokens, double walltime, bool all, double *seconds)
{
    const struct ramp_work work = {PROMPT, tokens};
    struct ramp ramp;
    struct ramp_counts counts = {0};
    int left[MAX_SEQS], n_running = 0, n_begun = 0, n_done = 0;
    ramp_open(&ramp, 1);
    for (*seconds = 0; n_done < n && *seconds < walltime;) {
        int n_new = 0;
        while (n_running < MAX_SEQS && n_begun < n && (all || ramp_allows(&ramp, &work, 1, walltime - *seconds))) {
            ramp_begin(&ramp, &work);
            left[n_running++] = tokens;
            n_begun++;
            n_new++;
        }
        assert_true(n_running > 0);
        double step = g->step + g->sequence * n_running + g->prompt * PROMPT * n_new;
        *seconds += *seconds < g->late || g->late <= 0 ? step : g->slower * step;
        counts.seconds = *seconds;
        counts.n_prompt += PROMPT * n_new;
        counts.n_output += n_running;
        if (*seconds > walltime)
            break;
        for (int i = 0; i < n_running; i++) {
            if (--left[i] > 0)
                continue;
            ramp_end(&ramp, &work, tokens);
            left[i--] = left[--n_running];
            n_done++;
        }
        ramp_learn(&ramp, &counts);
    }
    return n_done;
}

static const struct paper_engine linear = {0, 2e-4, 1e-5, 0, 0}, flat = {2e-2, 1e-6, 1e-6, 0, 0},
                                 between = {5e-4, 2e-4, 2e-5, 0, 0};

/* 400 lines of 200 tokens, which together need 8 to 16 s, in runs of 2.5 s. */
static void every_run_gets_on(void **unused)
{
    (void)unused;
    const struct paper_engine *const replica[] = {&linear, &between};
    for (int k = 0; k < 2; k++) {
        double seconds;
        int n_left = 400, n_runs = 0;
        assert_int_equal(run_share(replica[k], n_left, 200, 2.5, true, &seconds), 0);
        for (; n_left > 0; n_runs++) {
            int n = run_share(replica[k], n_left, 200, 2.5, false, &seconds);
            print_message("engine %d, run %d: %d lines\n", k, n_runs, n);
            assert_true(n > 0);
            n_left -= n;
        }
        assert_in_range(n_runs, 6, 16);
    }
}

/* Does a run on a machine that takes `slower` times as long from `late` on have results before the walltime? */
static bool gets_on(double late, double slower, double walltime)
{
    struct paper_engine engine = between;
    double seconds;
    engine.late = late;
    engine.slower = slower;
    return run_share(&engine, 400, 200, walltime, false, &seconds) > 0;
}

/* The machine becomes slower after the first wave has begun. */
static void slower_on_the_way(void **unused)
{
    (void)unused;
    assert_true(gets_on(0.1, 1.9, 2.5));
}

/* It is five times as fast in its first steps, while other programs on it wait for something. */
static void fast_at_first(void **unused)
{
    (void)unused;
    assert_true(gets_on(0.02, 5, 10));
}

/* With hours left it is as fast as without a limit. */
static void long_job(void **unused)
{
    (void)unused;
    const struct paper_engine *const replica[] = {&linear, &between, &flat};
    for (int k = 0; k < 3; k++) {
        double without, with;
        assert_int_equal(run_share(replica[k], 5000, 200, 3600, true, &without), 5000);
        assert_int_equal(run_share(replica[k], 5000, 200, 3600, false, &with), 5000);
        print_message("engine %d: %.2f s, %.2f s without a limit\n", k, with, without);
        assert_true(with < 1.01 * without);
    }
}

/* A walltime that cuts a long job: no less than 95 % of the lines that fit if the time is ignored. */
static void no_room_is_wasted(void **unused)
{
    (void)unused;
    const struct paper_engine *const replica[] = {&linear, &between, &flat};
    for (int k = 0; k < 3; k++) {
        double seconds;
        int most = run_share(replica[k], 100000, 200, 200, true, &seconds),
            n = run_share(replica[k], 100000, 200, 200, false, &seconds);
        print_message("engine %d: %d lines, %d without looking at the time\n", k, n, most);
        assert_true(n > 0.95 * most);
    }
}

/* One request for each replica until a token was measured, and always one after that: pace.h says whether it ends in
 * time. */
static void one_for_each_engine(void **unused)
{
    (void)unused;
    const struct ramp_work work = {PROMPT, 200};
    struct ramp ramp;
    ramp_open(&ramp, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(ramp_allows(&ramp, &work, 1, 1e9));
        ramp_begin(&ramp, &work);
    }
    assert_false(ramp_allows(&ramp, &work, 1, 1e9));
    ramp_learn(&ramp, &(struct ramp_counts){0, 0, 0.5}); /* a prompt in several steps: no estimate yet */
    assert_false(ramp_allows(&ramp, &work, 1, 1e9));
    ramp_learn(&ramp, &(struct ramp_counts){PROMPT, 1, 1});
    assert_true(ramp_allows(&ramp, &work, 1, 1e9));
    assert_false(ramp_allows(&ramp, &work, 1, 100));
    ramp_end(&ramp, &work, 1);
    assert_true(ramp_allows(&ramp, &work, 1, 0.1));
}

/* Lines of one token have no decode steps; prompts take all of their time. */
static void prompts_only(void **unused)
{
    (void)unused;
    double seconds, without;
    assert_int_equal(run_share(&between, 5000, 1, 3600, false, &seconds), 5000);
    assert_int_equal(run_share(&between, 5000, 1, 3600, true, &without), 5000);
    assert_true(seconds < 1.01 * without);
    assert_true(run_share(&between, 5000, 1, 0.5, false, &seconds) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_run_gets_on), cmocka_unit_test(slower_on_the_way), cmocka_unit_test(fast_at_first),
        cmocka_unit_test(long_job),          cmocka_unit_test(no_room_is_wasted), cmocka_unit_test(one_for_each_engine),
        cmocka_unit_test(prompts_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
