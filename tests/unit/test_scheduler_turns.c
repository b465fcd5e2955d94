/* tests/unit/test_scheduler_turns.c - coordinator/schedule/scheduler.c, clients that try to take a whole engine:
 * another client's request is admitted at once, whatever they hold, and none is postponed for ever. */
#include "tests/unit/unit.h"

#include "tests/support/schedule.h"
#include "tests/unit/letters.h"

#define GREEDY 7
#define HONEST 3

static struct request *ask_for(struct schedule *run, uint64_t client, uint64_t party, int n_prompt, int max_tokens,
                               bool scores)
{
    struct err e = {0};
    struct request_rules rules = schedule_plain;
    int32_t prompt[SCHEDULE_MAX_LEN];
    uint64_t seed = (uint64_t)run->n + 1;
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = random_below(&seed, N_LETTERS);
    rules.max_tokens = max_tokens;
    rules.want_prompt_logprobs = scores;
    struct request *r = schedule_make(run, &rules, prompt, n_prompt);
    r->client = client;
    r->party = party;
    assert_int_equal(scheduler_add(&run->s, r, run->now, &e), 0);
    return r;
}

static struct request *ask(struct schedule *run, uint64_t client, int n_prompt, int max_tokens, bool scores)
{
    return ask_for(run, client, 0, n_prompt, max_tokens, scores);
}

/* Steps until the request has its first token, or is finished; fails after `most` steps. */
static void await_token(struct schedule *run, const struct request *r, int most)
{
    int index = r->index, n = 0;
    while (run->request[index] != NULL && run->request[index]->output.n == 0) {
        if (n++ == most)
            fail_msg("no token after %d steps", most);
        schedule_step(run, 1);
    }
}

static void step_often(struct schedule *run, int n)
{
    for (int i = 0; i < n; i++)
        schedule_step(run, 1);
}

/* A result is known a step after it was planned, and its first plan is the next one: three steps. */
#define AT_ONCE 3

static void gets_a_slot(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(4, 64, 200);
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 12; i++)
        ask(&run, GREEDY, 10, 60, false);
    step_often(&run, 5);
    assert_int_equal(run.s.n_running, 4);
    for (int i = 0; i < 2; i++) /* its share */
        await_token(&run, ask(&run, HONEST, 10, 60, false), AT_ONCE);
    assert_int_equal(run.s.stats.n_preemptions, 2);
    struct request *third = ask(&run, HONEST, 10, 60, false); /* no more than its share */
    step_often(&run, 10);
    assert_int_equal(third->output.n, 0);
    assert_int_equal(run.s.stats.n_preemptions, 2);
    schedule_drain(&run, 1);
    schedule_close(&run);
}

static void gets_blocks(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(12, 128, 20);
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 12; i++)
        ask(&run, GREEDY, 60, 60, false);
    step_often(&run, 8);
    assert_true(run.s.blocks[KV_MAIN].n_free < 4 && run.s.n_free_slots > 0);
    await_token(&run, ask(&run, HONEST, 60, 40, false), AT_ONCE + 2); /* the prompt is spread over steps */
    schedule_drain(&run, 1);
    schedule_close(&run);
}

static void gets_room_for_its_prompt(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(8, 16, 100);
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 6; i++)
        ask(&run, GREEDY, 120, 1, false);
    step_often(&run, 3);
    await_token(&run, ask(&run, HONEST, 7, 10, false), AT_ONCE);
    await_token(&run, ask(&run, HONEST, 40, 10, false), AT_ONCE + 5);
    schedule_drain(&run, 1);
    schedule_close(&run);
}

/* A less urgent request waits, whichever client sent it; a more urgent one takes its turn. */
static void priorities_stay_strict(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(4, 64, 200);
    struct err e = {0};
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 8; i++)
        ask(&run, GREEDY, 10, 30, false);
    step_often(&run, 3);
    int32_t prompt[] = {1, 2, 3};
    struct request *late = schedule_make(&run, &schedule_plain, prompt, 3);
    late->client = HONEST;
    late->priority = 1;
    assert_int_equal(scheduler_add(&run.s, late, run.now, &e), 0);
    while (run.s.n_waiting > 1) {
        assert_int_equal(late->state, REQUEST_WAITING);
        schedule_step(&run, 1);
    }
    assert_int_equal(run.s.stats.n_preemptions, 0);
    schedule_drain(&run, 1);
    schedule_close(&run);
}

/* A client whose short requests never end keeps taking turns from long ones. A preempted sequence runs on to its end,
 * and feeding it again is a part of the work. */
static void nobody_is_put_off_for_ever(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(3, 32, 27);
    int n_long = 0;
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 4; i++)
        ask(&run, GREEDY, 50, 60, false);
    step_often(&run, 8);
    while (run.n < SCHEDULE_MAX_REQUESTS) {
        struct request *r = ask(&run, HONEST, 3, 2, false);
        int index = r->index;
        while (run.request[index] != NULL)
            schedule_step(&run, 1);
        step_often(&run, 2); /* meanwhile its slot is taken again */
    }
    for (int i = 0; i < 4; i++)
        n_long += run.request[i] == NULL || run.request[i]->output.n > 20;
    assert_true(n_long >= 2); /* the short ones did not run alone */
    schedule_drain(&run, 1);
    print_message("# %d steps, %lld tokens fed, %llu preemptions\n", run.n_steps, (long long)run.device.n_fed,
                  (unsigned long long)run.s.stats.n_preemptions);
    int64_t needed = 4 * (50 + 60) + (SCHEDULE_MAX_REQUESTS - 4) * (3 + 2);
    assert_true(run.device.n_fed < 6 * needed);
    schedule_close(&run);
}

/* Two clients that each want everything get equal shares. */
static void shares_are_equal(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(8, 64, 200);
    int n[2] = {0, 0};
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 20; i++)
        ask(&run, GREEDY, 10, 40, false);
    step_often(&run, 4);
    for (int i = 0; i < 20; i++)
        ask(&run, HONEST, 10, 40, false);
    step_often(&run, 6);
    for (int i = 0; i < 20; i++, schedule_step(&run, 1)) {
        n[0] = n[1] = 0;
        for (int k = 0; k < run.s.n_running; k++)
            n[run.s.running[k]->client == HONEST]++;
        assert_int_equal(n[0], 4);
        assert_int_equal(n[1], 4);
    }
    schedule_drain(&run, 1);
    schedule_close(&run);
}

#define GATEWAY 5

/* A gateway asks on behalf of a greedy party and of an honest one, which gets its slot at once. */
static void parties_take_turns(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(4, 64, 200);
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 12; i++)
        ask_for(&run, GATEWAY, GREEDY, 10, 60, false);
    step_often(&run, 5);
    assert_int_equal(run.s.n_running, 4);
    for (int i = 0; i < 2; i++) /* its share */
        await_token(&run, ask_for(&run, GATEWAY, HONEST, 10, 60, false), AT_ONCE);
    assert_int_equal(run.s.stats.n_preemptions, 2);
    struct request *third = ask_for(&run, GATEWAY, HONEST, 10, 60, false);
    step_often(&run, 10);
    assert_int_equal(third->output.n, 0);
    schedule_drain(&run, 1);
    schedule_close(&run);
}

/* A client of nine names gets no more than one without a name, in slots nor in the room of a step. */
static void names_give_no_share(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(8, 64, 300);
    int n = 0;
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 18; i++)
        ask_for(&run, GATEWAY, (uint64_t)i % 9, 10, 50, false);
    step_often(&run, 4);
    for (int i = 0; i < 8; i++)
        ask(&run, HONEST, 10, 50, false);
    step_often(&run, 6);
    for (int i = 0; i < 20; i++, schedule_step(&run, 1)) {
        n = 0;
        for (int k = 0; k < run.s.n_running; k++)
            n += run.s.running[k]->client == HONEST;
        assert_int_equal(n, 4);
    }
    schedule_drain(&run, 1);
    schedule_close(&run);
}

/* Long prompts of one party leave room for another's, and many parties' for another client's. */
static void parties_share_a_step(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(8, 16, 200);
    (void)state;
    for (int n_parties = 1; n_parties <= 6; n_parties += 5) {
        schedule_open(&run, &setup);
        for (int i = 0; i < 6; i++)
            ask_for(&run, GATEWAY, 1 + (uint64_t)(i % n_parties), 120, 1, false);
        step_often(&run, 3);
        await_token(&run, ask_for(&run, n_parties == 1 ? GATEWAY : HONEST, HONEST + 4, 7, 10, false), AT_ONCE);
        schedule_drain(&run, 1);
        schedule_close(&run);
    }
}

/* Six parties together get no more of a step than one client's part, whatever the smallest part of each is. */
static void parties_keep_to_their_client(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(14, 32, 200);
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 6; i++)
        ask_for(&run, GATEWAY, 1 + (uint64_t)i, 120, 1, false);
    for (int i = 0; i < 8; i++)
        ask(&run, HONEST, 2, 1, false);
    schedule_step(&run, 1);
    for (int i = 6; i < 14; i++)
        assert_int_equal(run.request[i]->n_fed, 2);
    schedule_drain(&run, 1);
    schedule_close(&run);
}

/* If a client has to give way, its party with most sequences does. */
static void the_party_with_most_gives_way(void **state)
{
    struct schedule run;
    const struct scheduler_setup setup = schedule_setup(4, 64, 200);
    (void)state;
    schedule_open(&run, &setup);
    for (int i = 0; i < 4; i++)
        ask_for(&run, GATEWAY, i < 3 ? GREEDY : HONEST, 10, 60, false);
    step_often(&run, 5);
    await_token(&run, ask(&run, HONEST, 10, 60, false), AT_ONCE);
    assert_int_equal(run.request[2]->n_preempted, 1);
    assert_int_equal(run.request[3]->n_preempted, 0);
    schedule_drain(&run, 1);
    schedule_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_a_slot),
        cmocka_unit_test(gets_blocks),
        cmocka_unit_test(gets_room_for_its_prompt),
        cmocka_unit_test(priorities_stay_strict),
        cmocka_unit_test(nobody_is_put_off_for_ever),
        cmocka_unit_test(shares_are_equal),
        cmocka_unit_test(parties_take_turns),
        cmocka_unit_test(names_give_no_share),
        cmocka_unit_test(parties_share_a_step),
        cmocka_unit_test(parties_keep_to_their_client),
        cmocka_unit_test(the_party_with_most_gives_way),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
