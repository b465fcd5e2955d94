/* tests/unit/test_grammar_runs.c - text/grammar/: runs of one form share their results, forget them, and stay correct;
 * memory and effort are bounded. */
#include "tests/unit/grammar_masks.h"

#include <pthread.h>

enum { TOGETHER = 6 };

/* A run of a form, and the same run alone for comparison, if any. */
struct companion {
    struct form *form;
    struct grammar_run run, alone;
};

static void open_companion(struct companion *c, const char *source, const struct lexicon *no_walks)
{
    struct err e = {0};
    assert_int_equal(form_open_text(&c->form, FORM_SCHEMA, source, strlen(source), &e), 0);
    assert_int_equal(grammar_run_open(&c->run, &c->form->grammar, lexicon, &e), 0);
    c->alone = (struct grammar_run){0};
    if (no_walks != NULL)
        assert_int_equal(grammar_run_open(&c->alone, &c->form->grammar, no_walks, &e), 0);
    assert_ptr_not_equal(c->run.walk, c->alone.walk);
}

static void *close_companion(void *arg)
{
    struct companion *c = arg;
    grammar_run_close(&c->run);
    grammar_run_close(&c->alone);
    form_close(c->form);
    return NULL;
}

/* Returns whether it is complete. */
static bool go_on_together(struct companion *c, uint32_t *mask, uint32_t *expected, uint64_t *seed)
{
    static const int32_t end = END;
    struct err e = {0};
    assert_int_equal(grammar_run_mask(&c->run, &end, 1, mask, &e), 0);
    if (c->alone.walk != NULL) {
        assert_int_equal(grammar_run_mask(&c->alone, &end, 1, expected, &e), 0);
        assert_memory_equal(mask, expected, (size_t)lexicon->n_words * sizeof *mask);
    }
    int32_t id = choose_token(mask, seed);
    if (id == end)
        return true;
    assert_int_equal(grammar_run_take(&c->run, id, &e), 0);
    if (c->alone.walk != NULL) {
        assert_int_equal(grammar_run_take(&c->alone, id, &e), 0);
        assert_int_equal(grammar_run_ended(&c->run), grammar_run_ended(&c->alone));
    }
    return grammar_run_ended(&c->run);
}

/* Runs of one form, which come and go, have the masks that each would have alone, also after states were forgotten. */
static void runs_share_what_they_find(void **state)
{
    (void)state;
    static const char source[] =
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\","
        "\"minLength\":2000,\"maxLength\":3000},\"y\":{\"type\":\"string\",\"minLength\":2000,\"maxLength\":3000}},"
        "\"required\":[\"x\",\"y\"]}}";
    struct lexicon no_walks = *lexicon;
    struct companion c[TOGETHER];
    uint64_t seed = 12;
    int n_tidied = 0;
    uint32_t *mask = calloc(2 * (size_t)lexicon->n_words, sizeof *mask);
    no_walks.walks = NULL;
    for (int k = 0; k < TOGETHER; k++)
        open_companion(&c[k], source, &no_walks);
    for (int i = 0; i < 12000; i++) {
        int k = random_below(&seed, TOGETHER);
        assert_ptr_equal(c[k].run.walk, c[0].run.walk);
        n_tidied = c[k].run.machine->n_tidied;
        if (go_on_together(&c[k], mask, mask + lexicon->n_words, &seed)) {
            pthread_t other;
            assert_int_equal(pthread_create(&other, NULL, close_companion, &c[k]), 0);
            assert_int_equal(pthread_join(other, NULL), 0);
            open_companion(&c[k], source, &no_walks);
        }
    }
    for (int k = 0; k < TOGETHER; k++)
        close_companion(&c[k]);
    print_message("states forgotten %d times\n", n_tidied);
    assert_true(n_tidied >= 2);
    free(mask);
}

/* If there are more grammars than are kept, the oldest are rebuilt; their runs go on. */
static void walks_are_bounded(void **state)
{
    (void)state;
    struct companion c[WALKS_KEPT + 2], again;
    struct lexicon no_walks = *lexicon;
    char source[64];
    uint64_t seed = 4;
    uint32_t *mask = calloc(2 * (size_t)lexicon->n_words, sizeof *mask);
    no_walks.walks = NULL;
    for (int k = 0; k < WALKS_KEPT + 2; k++) {
        (void)snprintf(source, sizeof source, "{\"type\":\"string\",\"maxLength\":%d}", k + 3);
        open_companion(&c[k], source, &no_walks);
        for (int i = 0; i < k; i++)
            assert_ptr_not_equal(c[k].run.walk, c[i].run.walk);
    }
    open_companion(&again, source, &no_walks);
    assert_ptr_equal(again.run.walk, c[WALKS_KEPT + 1].run.walk);
    close_companion(&again);
    open_companion(&again, "{\"type\":\"string\",\"maxLength\":3}", &no_walks);
    assert_ptr_not_equal(again.run.walk, c[0].run.walk);
    close_companion(&again);
    for (int k = 0; k < WALKS_KEPT + 2; k++) {
        for (int i = 0; i < 9 && !go_on_together(&c[k], mask, mask + lexicon->n_words, &seed); i++)
            continue;
        close_companion(&c[k]);
    }
    free(mask);
}

/* Cached masks are found; if there are too many, those not requested are dropped. */
static void kept_masks_are_bounded(void **state)
{
    (void)state;
    enum { MANY = 3 * MASKS_SETS * MASKS_WAYS };
    struct masks *masks = calloc(1, sizeof *masks);
    const struct masks_key asked = {7, -1, 0};
    uint32_t mask[2] = {0};
    int n_there = 0;
    masks_keep(masks, &asked, mask, 2);
    for (int i = 0; i < MANY; i++) {
        const struct masks_key key = {(uint64_t)i % 3 + 1, i / 3, i % 2};
        assert_null(masks_find(masks, &key));
        assert_non_null(masks_find(masks, &asked));
        mask[1] = (uint32_t)i;
        masks_keep(masks, &key, mask, 2);
    }
    for (int i = 0; i < MANY; i++) {
        const struct masks_key key = {(uint64_t)i % 3 + 1, i / 3, i % 2}, other = {key.walk, key.state, !key.n_tidied};
        const uint32_t *found = masks_find(masks, &key);
        assert_true(found == NULL || found[1] == (uint32_t)i);
        assert_null(masks_find(masks, &other));
        n_there += found != NULL;
    }
    assert_in_range(n_there, MASKS_SETS * MASKS_WAYS / 2, MASKS_SETS * MASKS_WAYS - 1);
    masks_close(masks);
    free(masks);
}

/* Runs whose states alone fill the shared machine get their own, so that it does not forget at each mask, and stay
 * correct. */
static void crowded_runs_part(void **state)
{
    (void)state;
    static const char source[] = "{\"type\":\"string\",\"pattern\":\"^(a{1,9}|b){300,900}$\"}";
    enum { MANY = 240 };
    struct lexicon no_walks = *lexicon;
    struct companion *c = calloc(MANY, sizeof *c);
    uint64_t seed = 21;
    int n_parted = 0;
    uint32_t *mask = calloc(2 * (size_t)lexicon->n_words, sizeof *mask);
    no_walks.walks = NULL;
    for (int k = 0; k < MANY; k++) {
        open_companion(&c[k], source, k % 12 == 0 ? &no_walks : NULL);
        assert_ptr_equal(c[k].run.walk, c[0].run.walk);
    }
    for (int i = 0; i < 270 * MANY; i++) {
        int k = i % MANY;
        assert_false(go_on_together(&c[k], mask, mask + lexicon->n_words, &seed));
        n_parted += c[k].run.walk != c[0].run.walk;
    }
    for (int k = 0; k < MANY; k++)
        close_companion(&c[k]);
    print_message("%d masks of runs that had parted\n", n_parted);
    assert_true(n_parted > 0);
    free(mask);
    free(c);
}

/* Long runs forget their states, and stay correct. */
static void long_runs(void **state)
{
    (void)state;
    static const char source[] =
        "{\"type\":\"array\",\"minItems\":400,\"items\":{\"type\":\"object\",\"properties\":{\"x\":"
        "{\"type\":\"string\",\"minLength\":3,\"maxLength\":60}}}}";
    struct form *form;
    struct err e = {0};
    uint64_t seed = 5;
    assert_int_equal(form_open_text(&form, FORM_SCHEMA, source, sizeof source - 1, &e), 0);
    (void)follow(form, 3000, &seed, false, END);
    form_close(form);
}

/* Patterns with a length, whose states all differ, stay far below the limit that ends a request. */
static void lengths_are_no_effort(void **state)
{
    (void)state;
    static const char *const patterns[] = {"a", "[0-9]$", "(foo|bar)", "a.*b.*c", "^\\\\S+@\\\\S+$"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char source[200];
        struct form *form;
        struct err e = {0};
        uint64_t seed = 5 + i;
        int n = snprintf(source, sizeof source,
                         "{\"type\":\"array\",\"minItems\":4,\"maxItems\":6,\"items\":{\"type\":\"string\","
                         "\"minLength\":1,\"maxLength\":16,\"pattern\":\"%s\"}}",
                         patterns[i]);
        assert_int_equal(form_open_text(&form, FORM_SCHEMA, source, (size_t)n, &e), 0);
        for (int k = 0; k < 20; k++)
            (void)follow(form, 300, &seed, false, END);
        form_close(form);
    }
}

/* Too many ways to continue end the request, instead of using up the server's time. */
static void effort_is_bounded(void **state)
{
    (void)state;
    static const char source[] = "\"((([a-z ]|[a-z ][a-z ]){0,40}c?){0,12}d?){0,12}\"";
    struct form *form;
    struct err e = {0};
    struct grammar_run r;
    uint32_t *mask = calloc((size_t)lexicon->n_words, sizeof *mask);
    assert_int_equal(form_open_text(&form, FORM_REGEX, source, sizeof source - 1, &e), 0);
    assert_int_equal(grammar_run_open(&r, &form->grammar, lexicon, &e), 0);
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++)
        rc = grammar_run_mask(&r, NULL, 0, mask, &e) != 0 || grammar_run_take(&r, 66, &e) != 0;
    assert_int_equal(rc, 1);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "too many continuations");
    free(mask);
    grammar_run_close(&r);
    form_close(form);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_share_what_they_find),
        cmocka_unit_test(walks_are_bounded),
        cmocka_unit_test(kept_masks_are_bounded),
        cmocka_unit_test(crowded_runs_part),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(lengths_are_no_effort),
        cmocka_unit_test(effort_is_bounded),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
