/* tests/unit/test_guesses.c - coordinator/drafts/: guesses and their chances, times of steps, the options; and with the
 * scheduler: drafts are made if they pay and stop if they do not. */
#include "tests/unit/unit.h"

#include "coordinator/drafts/corpus.h"
#include "coordinator/drafts/costs.h"
#include "coordinator/drafts/draft_options.h"
#include "coordinator/drafts/guesses.h"
#include "coordinator/drafts/payoff.h"
#include "tests/support/schedule.h"

static const struct guess_rules short_ends = {.most = 4, .shortest = 1, .longest = 3};

static void chances_follow_what_came(void **state)
{
    (void)state;
    struct guesses *g;
    struct err e = {0};
    int32_t token[4];
    assert_int_equal(guesses_open(&g, &short_ends, 1000, NULL, &e), 0);
    assert_int_equal(guesses_make(g, 4, token), 0);
    for (int i = 0; i < 30; i++)
        guesses_add(g, i % 3, i >= 3);
    assert_int_equal(guesses_make(g, 4, token), 4);
    assert_int_equal(token[3], 0);
    assert_true(guesses_chance(g, 0) > 0.95 && guesses_chance(g, 1) > 0.95);
    for (int i = 0; i < 60; i++) /* 1, and never again the token after it */
        guesses_add(g, i % 2 == 0 ? 1 : 100 + i, true);
    assert_true(guesses_chance(g, 0) < 0.3);
    guesses_close(&g);
    guesses_close(&g); /* harmless */
}

/* Other answers are searched if the own text has a shorter match; a border is not crossed; old text is forgotten. */
static void other_answers_are_known(void **state)
{
    (void)state;
    const struct guess_rules rules = {.most = 4, .shortest = 2, .longest = 3, .shared = 1};
    static const int32_t first[] = {1, 2, 3, 4, 5, 6, 7}, second[] = {8, 3, 4, 50, 51};
    struct corpus *c;
    struct guesses *g;
    struct err e = {0};
    int32_t token[4];
    assert_int_equal(corpus_open(&c, &e), 0);
    assert_int_equal(guesses_open(&g, &rules, 1000, c, &e), 0);
    corpus_add(c, first, 7);
    corpus_add(c, second, 5);
    corpus_learn(c, 9); /* a part of it only */
    corpus_learn(c, 100);
    guesses_add(g, 9, false);
    guesses_add(g, 3, false);
    assert_int_equal(guesses_make(g, 4, token), 0); /* one token is too few */
    guesses_add(g, 4, true);
    assert_int_equal(guesses_make(g, 4, token), 2); /* the later one of two, up to its end */
    assert_true(token[0] == 50 && token[1] == 51);
    for (int i = 2; i <= 4; i++)
        guesses_add(g, i, true);
    assert_int_equal(guesses_make(g, 4, token), 3); /* three are equal in the first one */
    assert_true(token[0] == 5 && token[1] == 6 && token[2] == 7);
    guesses_add(g, 60, true);
    for (int i = 2; i <= 4; i++)
        guesses_add(g, i, true);
    assert_int_equal(guesses_make(g, 2, token), 2); /* the own text has as many */
    assert_true(token[0] == 60 && token[1] == 2);
    guesses_add(g, -1, false);
    assert_int_equal(guesses_make(g, 4, token), 0);
    guesses_close(&g);
    assert_int_equal(guesses_open(&g, &rules, 1000, c, &e), 0);
    for (int32_t i = 0; i < CORPUS_PART; i += 8) {
        const int32_t unlike[] = {1000 + i, 1001 + i, 1002 + i, 1003 + i, 1004 + i, 1005 + i, 1006 + i};
        corpus_add(c, unlike, 7);
        corpus_learn(c, 7);
    }
    guesses_add(g, 5, false);
    guesses_add(g, 6, false);
    assert_int_equal(guesses_make(g, 4, token), 1); /* in the older part */
    for (int32_t i = 0; i < CORPUS_PART; i += 4) {
        corpus_add(c, second, 5);
        corpus_learn(c, 5);
    }
    assert_int_equal(guesses_make(g, 4, token), 0);
    guesses_close(&g);
    corpus_close(&c);
    corpus_close(&c); /* harmless */
}

/* Answers are learned piece by piece: a waiting one is unknown, and of one in progress the beginning is known. An
 * answer that does not fit beside the waiting ones loses its beginning. */
static void answers_wait_to_be_learned(void **state)
{
    (void)state;
    const struct guess_rules rules = {.most = 4, .shortest = 2, .longest = 3, .shared = 1};
    static int32_t longer[CORPUS_PART + 10];
    struct corpus *c;
    struct guesses *g;
    struct err e = {0};
    int32_t token[4];
    for (int32_t i = 0; i < CORPUS_PART + 10; i++)
        longer[i] = i;
    assert_int_equal(corpus_open(&c, &e), 0);
    assert_int_equal(guesses_open(&g, &rules, 1000, c, &e), 0);
    corpus_add(c, longer, CORPUS_PART + 10);
    corpus_add(c, longer, 5); /* no room */
    guesses_add(g, 20, false);
    guesses_add(g, 21, false);
    assert_int_equal(guesses_make(g, 4, token), 0);
    corpus_learn(c, 12); /* from the 11th on: 11 to 22 */
    assert_int_equal(guesses_make(g, 4, token), 1);
    assert_int_equal(token[0], 22);
    corpus_learn(c, CORPUS_PART);
    assert_int_equal(guesses_make(g, 4, token), 4);
    guesses_add(g, 1, false);
    guesses_add(g, 2, false);
    assert_int_equal(guesses_make(g, 4, token), 0);
    corpus_add(c, longer, 5); /* of the other part */
    corpus_learn(c, 1);
    corpus_learn(c, 4);
    assert_int_equal(guesses_make(g, 4, token), 2);
    assert_true(token[0] == 3 && token[1] == 4);
    guesses_close(&g);
    corpus_close(&c);
}

static void times_between_known_ones(void **state)
{
    (void)state;
    static struct costs c;
    assert_true(costs_seconds(&c, 5) == 1);
    costs_add(&c, 1, 0.010);
    assert_true(costs_seconds(&c, 9) == 0.010); /* as if another row cost nothing, so that it is tried */
    costs_add(&c, 5, 0.030);
    assert_float_equal(costs_seconds(&c, 3), 0.020, 1e-9);
    assert_true(costs_seconds(&c, 200) == 0.030 && costs_seconds(&c, 5000) == 0.030);
    costs_add(&c, 5, 0.070);
    assert_float_equal(costs_seconds(&c, 5), 0.040, 1e-9); /* a single slow step counts a quarter */
    costs_add(&c, 0, 1);
    costs_add(&c, COSTS_ROWS + 1, 1);
    costs_add(&c, 7, 0);
    assert_false(costs_known(&c, 7) || costs_known(&c, COSTS_ROWS + 1));
    for (int i = 0; i < 2000; i++)
        costs_add(&c, 2, 0.015);
    assert_false(costs_known(&c, 1)); /* too long ago */
}

static struct guess_rules rules_of(struct run_options o)
{
    struct guess_rules rules;
    struct err e = {0};
    assert_int_equal(draft_rules(&rules, &o, &e), 0);
    return rules;
}

#define CONFIG(json)                                    \
    ((struct run_options){.speculative_config = (json), \
                          .num_speculative_tokens = -1, \
                          .prompt_lookup_max = -1,      \
                          .prompt_lookup_min = -1,      \
                          .draft_ranks = -1})

static void options_say_how(void **state)
{
    (void)state;
    struct guess_rules r = rules_of((struct run_options){.num_speculative_tokens = -1, .prompt_lookup_max = -1});
    assert_int_equal(r.most, 0);
    r = rules_of((struct run_options){.num_speculative_tokens = 3});
    assert_true(r.most == 3 && r.shortest == 5 && r.longest == 5 && !r.always);
    r = rules_of(CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": 5, \"prompt_lookup_max\": 4}"));
    assert_true(r.most == 5 && r.shortest == 4 && r.longest == 4 && !r.shared);
    r = rules_of(CONFIG("{\"method\": \"suffix\", \"num_speculative_tokens\": 5}"));
    assert_true(r.most == 5 && r.shared);
    struct run_options o = CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": 5, \"prompt_lookup_min\": 2}");
    o.prompt_lookup_max = 9; /* an option takes precedence */
    o.speculative = SPECULATIVE_ALWAYS;
    r = rules_of(o);
    assert_true(r.most == 5 && r.shortest == 2 && r.longest == 9 && r.always);
    o.speculative = SPECULATIVE_OFF;
    assert_int_equal(rules_of(o).most, 0);
}

static void expect_ranks(struct run_options o, int expected)
{
    struct err e = {0};
    int32_t n = -1;
    assert_int_equal(draft_ranks(&n, &o, &e), 0);
    assert_int_equal(n, expected);
}

static void a_draft_model_may_have_fewer_ranks(void **state)
{
    (void)state;
    struct run_options o = CONFIG("{\"num_speculative_tokens\": 3, \"model\": \"x\"}");
    expect_ranks(o, 0);
    o.speculative_config = "{\"num_speculative_tokens\": 3, \"model\": \"x\", \"draft_tensor_parallel_size\": 2}";
    expect_ranks(o, 2);
    o.draft_ranks = 1; /* an option takes precedence */
    expect_ranks(o, 1);
    o.speculative = SPECULATIVE_OFF;
    expect_ranks(o, 0);
}

static void expect_folder(struct run_options o, const char *expected)
{
    char folder[DRAFT_FOLDER_BYTES];
    struct err e = {0};
    assert_int_equal(draft_folder(folder, &o, &e), 0);
    assert_string_equal(folder, expected);
}

static void options_name_a_draft_model(void **state)
{
    (void)state;
    struct run_options o = {.draft_model = "small", .num_speculative_tokens = 4};
    assert_int_equal(rules_of(o).most, 4);
    expect_folder(o, "small");
    o.speculative = SPECULATIVE_OFF;
    expect_folder(o, "");
    expect_folder(CONFIG("{\"method\": \"draft_model\", \"model\": \"/a/b\", \"num_speculative_tokens\": 2}"), "/a/b");
    expect_folder(CONFIG("{\"method\": \"eagle3\", \"model\": \"/a/b\", \"num_speculative_tokens\": 2}"), "/a/b");
    expect_folder(CONFIG("{\"model\": \"/a/b\", \"num_speculative_tokens\": 2}"), "/a/b");
    expect_folder(CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": 5}"), "");
}

/* Steps take a tenth longer for each row; each draft takes `making` s, and the first n_right of a row are always
 * accepted. */
static int chosen(double making, int n_right)
{
    struct payoff p;
    struct costs steps = {0};
    payoff_open(&p);
    for (int rows = 1; rows <= 9; rows++)
        costs_add(&steps, rows, 1 + 0.1 * rows);
    for (int n = 1; n <= 8; n++)
        costs_add(&p.rounds, n, making * n);
    for (int i = 0; i < 200; i++)
        payoff_judge(&p, 8, n_right);
    return payoff_choose(&p, &steps, 1, 1, 8);
}

static void a_draft_model_pays_or_rests(void **state)
{
    (void)state;
    assert_int_equal(chosen(0.01, 8), 8);
    assert_int_equal(chosen(0.01, 3), 3);
    assert_int_equal(chosen(0.01, 0), 0);
    assert_int_equal(chosen(2, 8), 0); /* drafting is slower than the model */
    struct payoff p;
    struct costs steps = {0};
    payoff_open(&p);
    assert_int_equal(payoff_choose(&p, &steps, 1, 1, 8), 0); /* a step without drafts is measured first */
    costs_add(&steps, 1, 1);
    assert_true(payoff_choose(&p, &steps, 1, 1, 8) > 0);
    for (int i = 0; i < 200; i++)
        payoff_judge(&p, 1, 0);
    costs_add(&p.rounds, 1, 0.5);
    int tries = 0;
    for (int i = 0; i < 4000; i++)
        tries += payoff_choose(&p, &steps, 1, 1, 8);
    assert_true(tries >= 5 && tries < 20);
    while (p.rest > 1)
        payoff_pass(&p);
    struct payoff fresh;
    payoff_open(&fresh);
    for (int i = 0; i < 4; i++) /* the first results count for more than later ones */
        payoff_judge(&fresh, 1, 0);
    assert_true(fresh.chance[0] < 0.25 && fresh.chance[1] == 0.7);
    payoff_pass(&p); /* waits for a request that can be drafted */
    assert_int_equal(payoff_choose(&p, &steps, 1, 1, 8), 1);
}

static void refuse(struct run_options o, const char *why)
{
    struct guess_rules rules;
    struct err e = {0};
    assert_int_equal(draft_rules(&rules, &o, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, why);
}

static void options_are_refused_by_name(void **state)
{
    (void)state;
    refuse(CONFIG("{\"method\": \"eagle\", \"num_speculative_tokens\": 3}"),
           "\"eagle\", expected \"ngram\", \"suffix\", \"draft_model\", \"eagle3\" or \"mtp\"");
    refuse(CONFIG("{\"num_speculative_tokens\": 3}"), "\"method\" is \"\"");
    refuse(CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": 3, \"model\": \"x\"}"),
           "\"model\" belongs to the methods \"draft_model\" and \"eagle3\"");
    refuse(CONFIG("{\"method\": \"draft_model\", \"num_speculative_tokens\": 3}"), "which need it");
    refuse(CONFIG("{\"method\": \"draft_model\", \"num_speculative_tokens\": 3, \"model\": 5}"), "\"model\"");
    refuse(CONFIG("{\"num_speculative_tokens\": 3, \"model\": \"x\", \"parallel_drafting\": true}"),
           "\"parallel_drafting\" is not supported");
    refuse(CONFIG("{\"num_speculative_tokens\": 3, \"model\": \"x\", \"draft_tensor_parallel_size\": 0}"),
           "draft_tensor_parallel_size");
    refuse(CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": 3, \"draft_tensor_parallel_size\": 1}"),
           "draft_tensor_parallel_size belongs to the method \"draft_model\"");
    refuse(CONFIG("{\"method\": \"mtp\", \"num_speculative_tokens\": 1, \"draft_tensor_parallel_size\": 1}"),
           "draft_tensor_parallel_size belongs to the method \"draft_model\"");
    refuse((struct run_options){.draft_ranks = 2, .num_speculative_tokens = 3},
           "draft_tensor_parallel_size belongs to the method \"draft_model\"");
    refuse(CONFIG("{\"model\": \"x\", \"num_speculative_tokens\": 3, \"prompt_lookup_max\": 2}"),
           "belong to the method \"ngram\"");
    struct run_options both = CONFIG("{\"model\": \"x\", \"num_speculative_tokens\": 3}");
    both.draft_model = "y";
    refuse(both, "expected one of them");
    both = CONFIG("{\"method\": \"suffix\", \"num_speculative_tokens\": 3}");
    both.draft_model = "y";
    refuse(both, "expected one of them");
    refuse((struct run_options){.draft_model = "y"}, "the number of drafts is missing");
    refuse((struct run_options){.draft_model = "", .num_speculative_tokens = 2}, "a name of 0 bytes");
    refuse(CONFIG("{\"method\": \"ngram\"}"), "the number of drafts is missing");
    refuse(CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": 16}"), "num_speculative_tokens");
    refuse(CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": \"3\"}"), "num_speculative_tokens");
    refuse(CONFIG("{\"method\": \"ngram\", \"num_speculative_tokens\": 3, \"prompt_lookup_max\": 2, "
                  "\"prompt_lookup_min\": 3}"),
           "prompt_lookup_min 3 is more than prompt_lookup_max 2");
    refuse(CONFIG("[]"), "expected an object");
    refuse(CONFIG("{"), "--speculative-config: not valid JSON");
    refuse((struct run_options){.speculative = SPECULATIVE_ALWAYS}, "--speculative always needs");
}

/* Few letters, so that guesses are made and are mostly wrong. per_token: time per token, relative to 100 per step.
 * Returns the percentage of steps that verified drafts. */
static int drafted_percent(int per_token, bool always)
{
    struct scheduler_setup setup = schedule_setup(2, 64, 40);
    struct schedule run;
    struct request_rules rules = schedule_plain;
    int n_steps = 0;
    rules.max_tokens = 60;
    setup.limits.max_drafts = 16;
    setup.limits.max_logit_rows += 16;
    setup.guesses = short_ends;
    setup.guesses.always = always;
    schedule_open(&run, &setup);
    for (int i = 0; i < 20; i++)
        schedule_add(&run, &rules, 20, (uint64_t)i);
    for (; scheduler_busy(&run.s); n_steps += run.plan.n_tokens > 0) {
        schedule_plan(&run);
        run.now += 100 + per_token * run.plan.n_tokens;
        schedule_accept(&run);
    }
    int percent = (int)(100 * run.s.stats.n_drafts / run.s.stats.n_output_tokens);
    print_message("# %d a token, %s: %d steps, %d %% of their tokens with drafts\n", per_token,
                  always ? "always" : "where it pays", n_steps, percent);
    schedule_close(&run);
    return percent;
}

static void rest_where_they_lose(void **state)
{
    (void)state;
    int always = drafted_percent(100, true), cheap = drafted_percent(0, false), dear = drafted_percent(100, false);
    assert_true(always > 50);
    assert_true(cheap > always * 3 / 4);
    assert_true(dear < always / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chances_follow_what_came),
        cmocka_unit_test(other_answers_are_known),
        cmocka_unit_test(answers_wait_to_be_learned),
        cmocka_unit_test(times_between_known_ones),
        cmocka_unit_test(options_say_how),
        cmocka_unit_test(a_draft_model_may_have_fewer_ranks),
        cmocka_unit_test(options_are_refused_by_name),
        cmocka_unit_test(options_name_a_draft_model),
        cmocka_unit_test(a_draft_model_pays_or_rests),
        cmocka_unit_test(rest_where_they_lose),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
