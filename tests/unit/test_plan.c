/* tests/unit/test_plan.c - plan/plan.c: a packed plan comes back, and anything else is refused. */
#include "tests/unit/unit.h"

#include "plan/plan.h"

#include <stdlib.h>

#define VOCAB 50
static const struct limits limits = {.max_seqs = 4,
                                     .max_batch_tokens = 32,
                                     .max_len = 70,
                                     .max_logit_rows = 6,
                                     .n_blocks = 11,
                                     .mask_words = 2,
                                     .max_drafts = 3}; /* 5 blocks per slot */

static void fill(struct plan *p)
{
    plan_reset(p, 77);
    p->start[p->n_starts++] =
        (struct plan_start){.slot = 3, .n_history = 3, .sampling = {.seed = 5, .top_p = 0.5f, .n_bias = 2}};
    for (int i = 0; i < 3; i++)
        p->history[p->n_history++] = VOCAB - 1 - i;
    p->start[p->n_starts++] = (struct plan_start){.slot = 0, .sampling = {.temperature = 1, .prompt_len = 9}};
    p->seq[p->n_seqs++] = (struct plan_seq){3, 9, 0, 9, 2, 1, 1};
    p->mask[0] = 0x89abcdef;
    p->mask[1] = 0x3fffe;
    p->n_masks = 1;
    p->seq[p->n_seqs++] = (struct plan_seq){0, 1, 69, 70, 1, 1, 0};
    p->seq[p->n_seqs++] = (struct plan_seq){1, 4, 12, 30, 0, 0, 0};
    p->score[p->n_scores++] = (struct plan_score){0, 1, -1};
    for (int i = 0; i < 5; i++)
        p->block[p->n_blocks++] = (struct plan_block){3, i, 10 - i, KV_MAIN};
    for (int i = 0; i < 14; i++)
        p->token[p->n_tokens++] = i == 9 ? -1 : i == 13 ? VOCAB - 1 : i;
}

static struct plan make_plan(void)
{
    struct plan p;
    struct err e = {0};
    assert_int_equal(plan_open(&p, &limits, &e), 0);
    fill(&p);
    return p;
}

/* Packs `from` and unpacks it on "another rank". */
static int transfer(struct plan *from, struct plan *to, struct err *e)
{
    size_t bytes = plan_pack(from);
    assert_true(bytes <= from->message_capacity);
    assert_int_equal(plan_message_bytes(from->message), bytes);
    memcpy(to->message, from->message, bytes);
    return plan_unpack(to, bytes, VOCAB, e);
}

static void comes_back(void **state)
{
    (void)state;
    struct plan a = make_plan(), b = make_plan();
    struct err e = {0};
    plan_reset(&b, 0);
    assert_int_equal(transfer(&a, &b, &e), 0);
    expect_none(&e);
    assert_int_equal(b.step, 77);
    assert_int_equal(b.kind, PLAN_STEP);
    assert_int_equal(b.n_seqs, 3);
    assert_int_equal(b.n_tokens, 14);
    assert_int_equal(b.n_starts, 2);
    assert_int_equal(b.n_blocks, 5);
    assert_memory_equal(a.seq, b.seq, 3 * sizeof *a.seq);
    assert_memory_equal(a.start, b.start, 2 * sizeof *a.start);
    assert_memory_equal(a.block, b.block, 5 * sizeof *a.block);
    assert_int_equal(b.n_scores, 1);
    assert_memory_equal(a.score, b.score, sizeof *a.score);
    assert_int_equal(b.n_masks, 1);
    assert_memory_equal(a.mask, b.mask, 2 * sizeof *a.mask);
    assert_int_equal(b.n_history, 3);
    assert_memory_equal(a.history, b.history, 3 * sizeof *a.history);
    assert_memory_equal(a.token, b.token, 14 * sizeof *a.token);
    plan_reset(&a, 78);
    a.kind = PLAN_STOP;
    assert_int_equal(transfer(&a, &b, &e), 0);
    assert_int_equal(b.kind, PLAN_STOP);
    assert_int_equal(b.n_seqs + b.n_tokens + b.n_starts + b.n_blocks, 0);
    plan_close(&a);
    plan_close(&b);
    plan_close(&b); /* harmless */
}

static void the_largest_plan_fits(void **state)
{
    (void)state;
    struct plan a = make_plan(), b = make_plan();
    struct err e = {0};
    plan_reset(&a, UINT64_MAX);
    for (int i = 0; i < limits.max_seqs; i++) {
        a.start[a.n_starts++] = (struct plan_start){.slot = i};
        int n_rows = i == 0 ? 3 : 1; /* with a mask each */
        a.seq[a.n_seqs++] = (struct plan_seq){i, 8, 62, 70, n_rows, n_rows, MASK_HERE};
        a.score[a.n_scores++] = (struct plan_score){i, 0, -1};
        for (int k = 0; k < limits_blocks_per_slot(&limits); k++)
            a.block[a.n_blocks++] = (struct plan_block){i, k, 0, KV_MAIN};
    }
    a.n_masks = limits_sampled(&limits);
    a.start[0].n_history = a.n_history = limits.max_len;
    memset(a.history, 0, sizeof *a.history * (size_t)limits.max_len);
    a.n_tokens = limits.max_batch_tokens;
    memset(a.token, 0, sizeof *a.token * 32);
    assert_int_equal(transfer(&a, &b, &e), 0);
    assert_int_equal(plan_pack(&a), a.message_capacity);
    plan_close(&a);
    plan_close(&b);
}

#define REFUSED(change, text)                                            \
    do {                                                                 \
        struct plan a = make_plan(), b = make_plan();                    \
        struct err e = {0};                                              \
        change;                                                          \
        if (transfer(&a, &b, &e) == 0)                                   \
            print_error("accepted: %s\n", #change);                      \
        EXPECT_PARTS(&e, ERR_INTERNAL, "plan/plan.c:", "plan 77", text); \
        plan_close(&a);                                                  \
        plan_close(&b);                                                  \
    } while (0)

static void sequences_out_of_bounds(void **state)
{
    (void)state;
    REFUSED(a.seq[1].slot = -1, "sequence 1 is out of bounds");
    REFUSED(a.seq[1].slot = 4, "sequence 1 is out of bounds");
    REFUSED(a.seq[0].n_tokens = 0, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].n_tokens = -1, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].n_tokens = INT32_MAX, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].n_tokens = 10, "15 tokens and 3 rows of logits, expected 14 and at most 6");
    REFUSED(a.seq[0].n_tokens = 8, "13 tokens");
    REFUSED(a.seq[0].masked = 0, "1 masks, expected 0");
    REFUSED(a.seq[1].masked = 1, "1 masks, expected 2");
    REFUSED(a.seq[2].masked = 1, "sequence 2 is out of bounds"); /* no token is sampled there */
    REFUSED(a.seq[0].masked = -1, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].masked = 3, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].masked = MASK_LATE, "1 masks, expected 0");
    REFUSED(a.n_masks = 0, "0 masks, expected 1");
    REFUSED(a.n_masks = 4, "4 masks, expected 1");
    REFUSED(a.seq[1].pos = 70, "sequence 1 is out of bounds");
    REFUSED(a.seq[1].pos = -1, "sequence 1 is out of bounds");
    REFUSED(a.seq[2].pos = 67, "sequence 2 is out of bounds");
    REFUSED(a.seq[2].pos = INT32_MAX, "sequence 2 is out of bounds");
    REFUSED(a.seq[2].pos = INT32_MIN, "sequence 2 is out of bounds");
    REFUSED(a.seq[0].rope_len = 0, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].n_logits = -1, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].n_logits = 10, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].n_logits = 6, "14 tokens and 7 rows of logits");
    REFUSED(a.seq[2].sample = 1, "sequence 2 is out of bounds"); /* without a row of logits */
    REFUSED(a.seq[0].sample = 2, "1 masks, expected 2");
    REFUSED(a.seq[0].sample = 3, "sequence 0 is out of bounds");
    REFUSED(a.seq[0].sample = -1, "sequence 0 is out of bounds");
}

/* A sequence whose last tokens are drafts samples a row for each and for the token before them. */
static void drafts_out_of_bounds(void **state)
{
    (void)state;
    REFUSED((a.seq[2].n_logits = 2, a.seq[2].sample = 3), "sequence 2 is out of bounds");
    REFUSED((a.seq[1].sample = 2), "sequence 1 is out of bounds");
    REFUSED((a.seq[2].n_logits = a.seq[2].sample = a.seq[2].n_tokens = 5, a.n_tokens = 15, a.seq[0].n_logits = 1,
             a.n_scores = 0, a.token[14] = 0, a.seq[1].n_logits = a.seq[1].sample = 0),
            "4 drafted tokens, expected at most 3");
    REFUSED((a.n_masks = 2, a.seq[2].n_logits = a.seq[2].sample = 2, a.seq[2].masked = MASK_HERE),
            "2 masks, expected 3");
    REFUSED((a.seq[2].n_logits = a.seq[2].sample = 2, a.seq[2].masked = MASK_LATE), "sequence 2 is out of bounds");
    struct plan a = make_plan(), b = make_plan();
    struct err e = {0};
    a.seq[2].n_logits = a.seq[2].sample = 3;
    a.seq[2].masked = MASK_HERE;
    a.n_masks = 4;
    a.mask[7] = 0x1234;
    assert_int_equal(transfer(&a, &b, &e), 0);
    assert_int_equal(b.seq[2].sample, 3);
    assert_int_equal(b.mask[7], 0x1234);
    plan_close(&a);
    plan_close(&b);
}

static void scores_out_of_bounds(void **state)
{
    (void)state;
    REFUSED(a.score[0].seq = -1, "score entry 0 is out of bounds");
    REFUSED(a.score[0].seq = 3, "score entry 0 is out of bounds");
    REFUSED(a.score[0].seq = INT32_MAX, "score entry 0 is out of bounds");
    REFUSED(a.score[0].n_scored = -1, "score entry 0 is out of bounds");
    REFUSED(a.score[0].n_scored = 2, "score entry 0 is out of bounds"); /* the last row is sampled from */
    REFUSED(a.score[0].n_scored = INT32_MAX, "score entry 0 is out of bounds");
    REFUSED(a.token[8] = -1, "score entry 0 is out of bounds");                           /* not yet known */
    REFUSED((a.score[0].seq = 2, a.score[0].next = 1), "score entry 0 is out of bounds"); /* no rows at all */
    REFUSED((a.seq[0].sample = a.seq[0].masked = a.n_masks = 0, a.score[0].n_scored = 2),
            "score entry 0 is out of bounds"); /* without a next token */
    REFUSED((a.seq[0].sample = a.seq[0].masked = a.n_masks = 0, a.score[0].n_scored = 2, a.score[0].next = VOCAB),
            "score entry 0 is out of bounds");
    REFUSED(a.score[a.n_scores++] = a.score[0], "score entry 1 is out of bounds");
    REFUSED(a.n_scores = 4, "3 sequences, 4 of them scored");
    struct plan a = make_plan(), b = make_plan();
    struct err e = {0};
    a.seq[0].sample = a.seq[0].masked = a.n_masks = 0;
    a.score[0] = (struct plan_score){0, 2, VOCAB - 1};
    a.score[a.n_scores++] = (struct plan_score){1, 0, -1};
    assert_int_equal(transfer(&a, &b, &e), 0);
    assert_int_equal(b.score[0].next, VOCAB - 1);
    plan_close(&a);
    plan_close(&b);
}

/* A second kind of blocks has its own table and numbers. */
static void two_kinds_of_blocks(void **state)
{
    (void)state;
    struct plan a, b;
    struct err e = {0};
    struct limits two = limits;
    two.n_window_blocks = 3;
    two.window = 20;
    assert_int_equal(plan_open(&a, &two, &e), 0);
    assert_int_equal(plan_open(&b, &two, &e), 0);
    plan_reset(&a, 1);
    for (int i = 0; i < 4 * 5; i++) { /* all entries of both kinds */
        a.block[a.n_blocks++] = (struct plan_block){i / 5, i % 5, 10, KV_MAIN};
        a.block[a.n_blocks++] = (struct plan_block){i / 5, i % 5, 2, KV_WINDOWED};
    }
    assert_int_equal(transfer(&a, &b, &e), 0);
    assert_int_equal(b.n_blocks, 40);
    assert_memory_equal(a.block, b.block, 40 * sizeof *a.block);
    a.block[7].block = 3;
    assert_int_equal(transfer(&a, &b, &e), -1);
    assert_non_null(strstr(e.text, "block entry 7 is out of bounds"));
    a.block[7].block = 2;
    e = (struct err){0};
    a.block[6].kind = KV_KINDS;
    assert_int_equal(transfer(&a, &b, &e), -1);
    assert_non_null(strstr(e.text, "block entry 6 is out of bounds"));
    plan_close(&a);
    plan_close(&b);
}

static void the_rest_out_of_bounds(void **state)
{
    (void)state;
    REFUSED(a.start[1].slot = -1, "start 1 in slot -1");
    REFUSED(a.start[1].slot = 4, "start 1 in slot 4");
    REFUSED(a.start[1].n_history = -1, "start 1 in slot 0 with -1 tokens");
    REFUSED(a.start[1].n_history = 1, "4 tokens that are not fed, expected 3");
    REFUSED(a.start[0].n_history = 2, "2 tokens that are not fed, expected 3");
    REFUSED(a.history[0] = -1, "token id -1, vocabulary 50");
    REFUSED(a.history[2] = 50, "token id 50, vocabulary 50");
    REFUSED(a.block[2].slot = -1, "block entry 2 is out of bounds");
    REFUSED(a.block[2].slot = 4, "block entry 2 is out of bounds");
    REFUSED(a.block[2].index = -1, "block entry 2 is out of bounds");
    REFUSED(a.block[4].index = 5, "block entry 4 is out of bounds");
    REFUSED(a.block[2].block = -1, "block entry 2 is out of bounds");
    REFUSED(a.block[2].block = 11, "block entry 2 is out of bounds");
    REFUSED(a.block[1].kind = KV_WINDOWED, "block entry 1 is out of bounds");
    REFUSED(a.block[1].kind = -1, "block entry 1 is out of bounds");
    REFUSED(a.token[0] = PLAN_DRAFTED, "token id -2, vocabulary 50"); /* there is no draft model, */
    REFUSED((a.token[0] = PLAN_DRAFTED, b.limits.draft_len = 9, b.limits.draft_ranks = 1), /* or not on all ranks */
            "token id -2, vocabulary 50");
    REFUSED(a.token[13] = 50, "token id 50, vocabulary 50");
    REFUSED(a.kind = 0, "has kind 0");
    REFUSED(a.kind = PLAN_DROP + 1, "has kind 8");
    REFUSED(a.model = -1, "model -1");
    REFUSED(a.model = PLAN_MODELS, "model 64");
    REFUSED(a.report = -1, "report -1");
    REFUSED(a.report = 2, "report 2");
    REFUSED(a.shares = 2, "shares 2");
}

static void write_int(struct plan *p, size_t offset, int32_t value)
{
    memcpy(p->message + offset, &value, sizeof value);
}

#define DAMAGED(offset, value, text)                              \
    do {                                                          \
        struct plan a = make_plan();                              \
        struct err e = {0};                                       \
        size_t bytes_ = plan_pack(&a);                            \
        write_int(&a, offset, value);                             \
        assert_int_equal(plan_unpack(&a, bytes_, VOCAB, &e), -1); \
        EXPECT_PARTS(&e, ERR_INTERNAL, text);                     \
        plan_close(&a);                                           \
    } while (0)

/* Offsets within the header: magic, version, step (8), bytes (8), kind, n_seqs, n_tokens, n_starts, n_blocks, n_scores,
 * n_history, report, model, n_masks, shares. */
static void damaged_headers(void **state)
{
    (void)state;
    DAMAGED(0, 0, "magic 00000000");
    DAMAGED(4, 1, "version 1, expected 4e414c50 version 10");
    DAMAGED(16, 64, "bytes, expected");
    DAMAGED(20, 1, "bytes, expected");
    for (size_t offset = 28; offset < 44; offset += 4) {
        DAMAGED(offset, -1, "is out of bounds");
        DAMAGED(offset, INT32_MAX, "is out of bounds");
        DAMAGED(offset, 1, "expected");
    }
    DAMAGED(44, -1, "is out of bounds");
    DAMAGED(44, 4, "is out of bounds");
    DAMAGED(44, 2, "bytes, expected");
    DAMAGED(48, -1, "is out of bounds");
    DAMAGED(48, 71, "is out of bounds");
    DAMAGED(48, 4, "bytes, expected");
    DAMAGED(60, -1, "is out of bounds");
    DAMAGED(60, 7, "is out of bounds");
    DAMAGED(60, 6, "bytes, expected");
    struct plan a = make_plan();
    size_t bytes = plan_pack(&a);
    for (size_t n = 0; n < a.message_capacity + 5; n++) {
        struct err e = {0};
        assert_int_equal(plan_unpack(&a, n, VOCAB, &e), n == bytes ? 0 : -1);
    }
    plan_close(&a);
}

/* Any bytes are either refused, or within all bounds. */
static void random_damage(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct plan a = make_plan(), b = make_plan();
    int accepted = 0;
    for (int trial = 0; trial < 50000; trial++) {
        struct err e = {0};
        fill(&a);
        size_t bytes = plan_pack(&a);
        memcpy(b.message, a.message, bytes);
        for (int i = random_below(&seed, 4); i >= 0; i--) {
            int where = random_below(&seed, 3); /* bytes of `sampling` have no constraints here: leave them alone */
            size_t starts = PLAN_HEADER_BYTES + 2 * sizeof *a.start;
            size_t at = where == 0 ? (size_t)random_below(&seed, PLAN_HEADER_BYTES)
                                   : starts + (size_t)random_below(&seed, (int)(bytes - starts));
            b.message[at] ^= (unsigned char)(1 << random_below(&seed, 8));
        }
        if (plan_unpack(&b, bytes, VOCAB, &e) != 0) {
            assert_int_equal(e.code, ERR_INTERNAL);
            continue;
        }
        accepted++;
        int tokens = 0;
        assert_true(b.n_seqs <= limits.max_seqs && b.n_tokens <= limits.max_batch_tokens);
        for (int i = 0; i < b.n_seqs; i++) {
            const struct plan_seq *s = &b.seq[i];
            tokens += s->n_tokens;
            assert_true(s->slot >= 0 && s->slot < limits.max_seqs && s->pos >= 0 &&
                        s->pos + s->n_tokens <= limits.max_len);
        }
        assert_int_equal(tokens, b.n_tokens);
        for (int i = 0; i < b.n_tokens; i++)
            assert_true(b.token[i] >= -1 && b.token[i] < VOCAB);
        for (int i = 0; i < b.n_scores; i++)
            assert_true(b.score[i].seq >= 0 && b.score[i].seq < b.n_seqs && b.score[i].n_scored >= 0 &&
                        b.score[i].n_scored <= b.seq[b.score[i].seq].n_logits - b.seq[b.score[i].seq].sample);
        for (int i = 0; i < b.n_history; i++)
            assert_true(b.history[i] >= 0 && b.history[i] < VOCAB);
        for (int i = 0; i < b.n_blocks; i++)
            assert_true(b.block[i].block >= 0 && b.block[i].block < limits.n_blocks);
    }
    assert_true(accepted > 100 && accepted < 45000);
    plan_close(&a);
    plan_close(&b);
}

/* Plans that load and drop models have no body; their number is transmitted, whatever the limits are. */
static void changes(void **state)
{
    (void)state;
    struct plan a = make_plan();
    struct err e = {0};
    for (int kind = PLAN_LOAD; kind <= PLAN_DROP; kind++) {
        plan_reset(&a, 9);
        assert_int_equal(a.model, 0);
        a.kind = kind;
        a.model = PLAN_MODELS - 1;
        size_t bytes = plan_pack(&a);
        assert_int_equal(bytes, PLAN_HEADER_BYTES);
        assert_int_equal(plan_message_model(a.message), PLAN_MODELS - 1);
        plan_reset(&a, 0);
        assert_int_equal(plan_unpack(&a, bytes, VOCAB, &e), 0);
        assert_int_equal(a.kind, kind);
        assert_int_equal(a.model, PLAN_MODELS - 1);
    }
    write_int(&a, 56, PLAN_MODELS);
    assert_int_equal(plan_message_model(a.message), -1);
    plan_close(&a);
}

/* A plan grows with the limits of models that come, and keeps its memory for those that go. */
static void reserves(void **state)
{
    (void)state;
    struct plan p;
    struct err e = {0};
    const struct limits none = {0},
                        small = {.max_seqs = 2,
                                 .max_batch_tokens = 4,
                                 .max_len = 100,
                                 .max_logit_rows = 4,
                                 .n_blocks = 7,
                                 .mask_words = 1},
                        wide = {.max_seqs = 1,
                                .max_batch_tokens = 50,
                                .max_len = 10,
                                .max_logit_rows = 60,
                                .n_blocks = 3,
                                .mask_words = 5,
                                .max_drafts = 8};
    assert_int_equal(plan_open(&p, &none, &e), 0);
    size_t bytes = plan_pack(&p);
    assert_int_equal(bytes, PLAN_HEADER_BYTES);
    assert_int_equal(plan_reserve(&p, &small, &e), 0);
    size_t capacity = p.message_capacity;
    assert_int_equal(plan_reserve(&p, &small, &e), 0);
    assert_int_equal(p.message_capacity, capacity);
    assert_int_equal(plan_reserve(&p, &wide, &e), 0);
    assert_true(p.message_capacity > capacity);
    assert_int_equal(p.capacity.max_seqs, 2);
    assert_int_equal(p.capacity.max_batch_tokens, 50);
    assert_int_equal(p.capacity.max_len, 100);
    assert_int_equal(p.capacity.max_logit_rows, 60);
    assert_int_equal(p.capacity.max_drafts, 8);
    assert_int_equal(e.code, ERR_NONE);
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),
        cmocka_unit_test(the_largest_plan_fits),
        cmocka_unit_test(sequences_out_of_bounds),
        cmocka_unit_test(drafts_out_of_bounds),
        cmocka_unit_test(scores_out_of_bounds),
        cmocka_unit_test(the_rest_out_of_bounds),
        cmocka_unit_test(two_kinds_of_blocks),
        cmocka_unit_test(damaged_headers),
        cmocka_unit_test(changes),
        cmocka_unit_test(reserves),
        cmocka_unit_test(random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
