/* tests/unit/grammar_masks.h - the demo's vocabulary, and runs of a form that follow random tokens of their masks. */
#ifndef TESTS_UNIT_GRAMMAR_MASKS_H
#define TESTS_UNIT_GRAMMAR_MASKS_H

#include "tests/unit/unit.h"

#include "text/grammar/form.h"
#include "text/grammar/lexicon_keeper.h"

#include <stdlib.h>

enum { END = 0 }; /* ends the demo's texts */

static struct tokenizer *tokenizer;
static struct lexicon_keeper keeper;
static const struct lexicon *lexicon;

static inline int open_model(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(tokenizer_open(&tokenizer, "demo/lockstep-stories", &e), 0);
    lexicon_keeper_open(&keeper, tokenizer, tokenizer_vocab_size(tokenizer) + 77); /* a model has more ids */
    lexicon = lexicon_keeper_get(&keeper, &e);
    expect_none(&e);
    assert_ptr_equal(lexicon, lexicon_keeper_get(&keeper, &e));
    return 0;
}

static inline int close_model(void **state)
{
    (void)state;
    lexicon_keeper_close(&keeper);
    tokenizer_close(&tokenizer);
    return 0;
}

static inline bool has(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* A forced token is the mask's only one, and is allowed. */
static inline void check_forced(struct grammar_run *r, const uint32_t *mask, int32_t forced)
{
    int n = 0;
    for (int i = 0; i < lexicon->n_words; i++)
        n += __builtin_popcount(mask[i]);
    assert_int_equal(n, 1);
    assert_true(has(mask, forced) && lexicon_take(lexicon, r->machine, r->now.state, forced) >= 0);
}

static int n_full; /* masks that were compared token by token */

static inline void check_mask(struct grammar_run *r, const uint32_t *mask, int32_t end)
{
    if (grammar_run_forced(r) >= 0) {
        check_forced(r, mask, grammar_run_forced(r));
        return;
    }
    n_full++;
    for (int32_t id = 0; id < lexicon->n_tokens; id++) {
        bool may = lexicon_take(lexicon, r->machine, r->now.state, id) >= 0;
        if (id == end)
            may = r->machine->state[r->now.state].complete;
        if (has(mask, id) != may)
            print_error("token %d is %s\n", id, may ? "missing" : "too much");
        assert_int_equal(has(mask, id), may);
    }
}

static inline int32_t choose_token(const uint32_t *mask, uint64_t *seed)
{
    int n = 0, k;
    for (int i = 0; i < lexicon->n_words; i++)
        n += __builtin_popcount(mask[i]);
    k = random_below(seed, n);
    for (int32_t id = 0;; id++)
        if (has(mask, id) && k-- == 0)
            return id;
}

/* Follows random tokens of the masks, each of which is checked; true: the form was complete within `most` tokens. end:
 * a special token, such as the end of text; -1: none. */
static inline bool follow(const struct form *form, int most, uint64_t *seed, bool every, int32_t end)
{
    struct grammar_run r;
    struct err e = {0};
    struct text_buffer text = {0};
    uint32_t *mask = calloc((size_t)lexicon->n_words, sizeof *mask);
    bool ended = false;
    assert_int_equal(grammar_run_open(&r, &form->grammar, lexicon, &e), 0);
    for (int i = 0; i < most && !ended; i++) {
        assert_int_equal(grammar_run_mask(&r, &end, 1, mask, &e), 0);
        if (every || i % 7 == 0)
            check_mask(&r, mask, end);
        int32_t id = choose_token(mask, seed);
        if (id == end)
            break;
        assert_int_equal(tokenizer_token_bytes(tokenizer, id, &text, &e), 0);
        assert_int_equal(grammar_run_take(&r, id, &e), 0);
        ended = grammar_run_ended(&r);
    }
    bool complete = r.machine->state[r.now.state].complete;
    if (complete)
        assert_true(machine_matches(&form->grammar.graph, form->grammar.start, text.data != NULL ? text.data : "",
                                    text.bytes, &e));
    expect_none(&e);
    free(mask);
    text_free(&text);
    grammar_run_close(&r);
    return complete;
}

#endif
