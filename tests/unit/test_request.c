/* tests/unit/test_request.c - coordinator/schedule/request.c: tokens become text until a rule ends it. */
#include "tests/unit/unit.h"

#include "coordinator/schedule/request.h"
#include "tests/unit/letters.h"

#include <stdlib.h>

static struct tokenizer *tokenizer;

static int open_tokenizer(void **state)
{
    (void)state;
    tokenizer = letters_open();
    return tokenizer != NULL ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(&tokenizer);
    return 0;
}

/* Takes ids until the request is finished; returns the number taken. `end`: -1 ends the list. */
static int take_token(struct request *r, const int32_t *id)
{
    struct err e = {0};
    int n = 0;
    for (; id[n] >= 0 && r->finish == FINISH_NONE; n++) {
        struct sampled s = {.token = id[n], .logprob = -0.5f * (float)n};
        assert_int_equal(request_take(r, tokenizer, &s, false, &e), 0);
        expect_none(&e);
        assert_true(r->released <= r->text.bytes);
    }
    return n;
}

struct expected {
    int n_taken;
    enum finish_reason finish;
    const char *text;
};

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

static void expect(const struct request_rules *rules, const int32_t *id, struct expected x)
{
    struct request r = {.rules = rules};
    assert_int_equal(take_token(&r, id), x.n_taken);
    assert_int_equal(r.output.n, x.n_taken);
    assert_memory_equal(r.output.id, id, (size_t)x.n_taken * sizeof *id);
    assert_string_equal(finish_name(r.finish), finish_name(x.finish));
    assert_string_equal(r.text.data, x.text);
    if (x.finish != FINISH_NONE)
        assert_int_equal(r.released, strlen(x.text));
    request_close(&r);
}

static void ends_by_length(void **state)
{
    (void)state;
    struct request_rules rules = {.max_tokens = 3, .skip_special = true};
    expect(&rules, IDS(0, 1, 2, 3), (struct expected){3, FINISH_LENGTH, "abc"});
    expect(&rules, IDS(0, 1), (struct expected){2, FINISH_NONE, "ab"});
    expect(&rules, IDS(0, LETTER_EOS, 2), (struct expected){3, FINISH_LENGTH, "ac"}); /* the id is not a stop id here */
    rules.max_tokens = 1;
    expect(&rules, IDS(LETTER_AB), (struct expected){1, FINISH_LENGTH, "ab"});
    expect(&rules, IDS(LETTER_BYTE_C3), (struct expected){1, FINISH_LENGTH, "\xef\xbf\xbd"}); /* half a character */
}

static void ends_by_id(void **state)
{
    (void)state;
    struct request_rules rules = {.max_tokens = 9, .skip_special = true, .n_stop_ids = 2, .stop_id = {LETTER_EOS, 25}};
    expect(&rules, IDS(0, LETTER_EOS, 1), (struct expected){2, FINISH_STOP, "a"});
    expect(&rules, IDS(0, 1, 25, 1), (struct expected){3, FINISH_STOP, "ab"});
    expect(&rules, IDS(LETTER_EOS), (struct expected){1, FINISH_STOP, ""});
    expect(&rules, IDS(0, LETTER_BYTE_C3, LETTER_EOS), (struct expected){3, FINISH_STOP, "a\xef\xbf\xbd"});
    rules.skip_special = false;
    expect(&rules, IDS(0, LETTER_BOS, LETTER_EOS, 1), (struct expected){3, FINISH_STOP, "a<bos><eos>"});
    rules.max_tokens = 2; /* both at once: it counts as ended by itself */
    expect(&rules, IDS(0, LETTER_EOS), (struct expected){2, FINISH_STOP, "a<eos>"});
}

static struct stop_strings *open_stops(int n, const char *const *text)
{
    struct err e = {0};
    struct stop_strings *s = stop_open(n, text, &e);
    expect_none(&e);
    return s;
}

static void ends_by_text(void **state)
{
    (void)state;
    const char *const stop[] = {"abba", "zz", "\xc3\xa9"};
    struct request_rules rules = {.max_tokens = 9, .skip_special = true, .stop = open_stops(3, stop)};
    expect(&rules, IDS(2, 0, 1, 1, 0, 3), (struct expected){5, FINISH_STOP, "c"});
    expect(&rules, IDS(2, LETTER_AB, 1, 0, 3), (struct expected){4, FINISH_STOP, "c"});
    expect(&rules, IDS(2, LETTER_AB, LETTER_AB, 1, 0), (struct expected){5, FINISH_STOP, "cab"});
    expect(&rules, IDS(0, LETTER_BYTE_C3, LETTER_BYTE_A9), (struct expected){3, FINISH_STOP, "a"});
    rules.keep_stop = true;
    expect(&rules, IDS(2, LETTER_AB, 1, 0, 3), (struct expected){4, FINISH_STOP, "cabba"});
    rules.max_tokens = 4; /* a match complete with the last token ends it; else the held-back text is released */
    expect(&rules, IDS(2, LETTER_AB, 1, 0, 3), (struct expected){4, FINISH_STOP, "cabba"});
    expect(&rules, IDS(2, 2, LETTER_AB, 1), (struct expected){4, FINISH_LENGTH, "ccabb"});
    rules.n_stop_ids = 1;
    rules.stop_id[0] = LETTER_EOS;
    expect(&rules, IDS(2, LETTER_AB, LETTER_EOS), (struct expected){3, FINISH_STOP, "cab"});
    stop_close(rules.stop);
}

static void min_tokens_come_first(void **state)
{
    (void)state;
    const char *const stop[] = {"ab"};
    struct request_rules rules = {.sampling = {.min_tokens = 3},
                                  .max_tokens = 6,
                                  .skip_special = true,
                                  .stop = open_stops(1, stop),
                                  .n_stop_ids = 1,
                                  .stop_id = {LETTER_EOS}};
    expect(&rules, IDS(0, 1, 2, 0, 1), (struct expected){5, FINISH_STOP, "abc"});
    expect(&rules, IDS(2, 0, 1, 0), (struct expected){4, FINISH_NONE, "caba"}); /* the match begins too early */
    expect(&rules, IDS(2, 2, LETTER_AB), (struct expected){3, FINISH_STOP, "cc"});
    expect(&rules, IDS(2, LETTER_EOS, LETTER_EOS), (struct expected){3, FINISH_STOP, "c"});
    rules.sampling.min_tokens = 6;
    expect(&rules, IDS(0, 1, 0, 1, 0, 1), (struct expected){6, FINISH_LENGTH, "ababab"});
    stop_close(rules.stop);
}

static void released_text_is_final(void **state)
{
    (void)state;
    const char *const stop[] = {"abc"};
    struct request_rules rules = {.max_tokens = 9, .skip_special = true, .stop = open_stops(1, stop)};
    struct request r = {.rules = &rules};
    const int32_t id[] = {25, 0, 1, 3, 0, LETTER_BYTE_C3, LETTER_BYTE_A9};
    const size_t released[] = {1, 1, 1, 4, 4, 4, 7};
    for (size_t i = 0; i < sizeof id / sizeof id[0]; i++) {
        take_token(&r, (const int32_t[]){id[i], -1});
        assert_int_equal(r.released, released[i]);
    }
    assert_memory_equal(r.text.data, "zabda\xc3\xa9", 7);
    request_close(&r);
    request_close(&r); /* harmless */
    stop_close(rules.stop);
}

static void keeps_log_probabilities(void **state)
{
    (void)state;
    struct request_rules rules = {.max_tokens = 200, .want_logprobs = true};
    struct request r = {.rules = &rules};
    int32_t id[201];
    for (int i = 0; i < 200; i++)
        id[i] = i % 26;
    id[200] = -1;
    assert_int_equal(take_token(&r, id), 200);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(r.logprobs[i].token, i % 26);
        assert_true(r.logprobs[i].logprob == -0.5f * (float)i);
    }
    request_close(&r);
}

/* Without a tokenizer there are only tokens, and the end is by their number. */
static void without_text(void **state)
{
    (void)state;
    const struct request_rules rules = {.max_tokens = 3, .n_stop_ids = 1, .stop_id = {5}};
    struct request r = {.rules = &rules};
    struct err e = {0};
    for (int i = 0; i < 3; i++) {
        const struct sampled s = {.token = 5 + i};
        assert_int_equal(r.finish, FINISH_NONE);
        assert_int_equal(request_take(&r, NULL, &s, false, &e), 0);
        assert_int_equal(r.output.id[i], 5 + i);
    }
    assert_int_equal(r.finish, FINISH_LENGTH);
    assert_int_equal(r.output.n, 3);
    assert_null(r.text.data);
    request_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_by_length),         cmocka_unit_test(ends_by_id),
        cmocka_unit_test(ends_by_text),           cmocka_unit_test(min_tokens_come_first),
        cmocka_unit_test(released_text_is_final), cmocka_unit_test(keeps_log_probabilities),
        cmocka_unit_test(without_text),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
