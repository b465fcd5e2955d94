/* tests/unit/test_scheduler_form.c - requests with a form among free ones, on an engine that is a step ahead or not:
 * every plan that samples such a sequence has its mask, tokens of the mask make texts of the form, whatever is
 * preempted or cancelled meanwhile. With drafts the tokens are the same. */
#include "tests/unit/unit.h"

#include "coordinator/schedule/scheduler_parts.h"

#include <stdlib.h>

enum { N = 24, MAX_LEN = 96, STEPS = 20000, SEQS = 5, DRAFTS = 12 };

struct play {
    struct tokenizer *tokenizer;
    struct lexicon_keeper keeper;
    struct scheduler scheduler;
    struct plan plan, copy;
    struct form *form;
    struct request_rules rules[2]; /* without a form, and with it */
    struct request request[N];
    bool released[N];
    int n_mixed; /* plans with a sequence of one token and one of several, both already running */
    int n_released, n_masks, n_late, n_preempted, n_sampled[2];
    struct sampled sampled[2][SEQS + DRAFTS];
    uint64_t seed;
    bool same;                   /* a sequence's token depends only on itself and its position, as with a model */
    const struct outcome *plain; /* the run whose tokens are drafted, up to a random position; NULL: no drafts */
    int n_barred;
};

struct outcome {
    int n_steps, n_mixed, n_preempted, n_barred, n_tokens[N];
    uint64_t n_accepted;
    int32_t id[N][MAX_LEN];
};

static void on_release(void *context, struct request *r)
{
    struct play *p = context;
    p->released[r->index] = true;
    p->n_released++;
    p->n_preempted += r->n_preempted;
}

static const char short_keys[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\","
    "\"maxLength\":30}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}";

static const char long_keys[] =
    "{\"type\":\"object\",\"properties\":{\"the_little_dragon\":{\"type\":\"integer\",\"maximum\":99},"
    "\"kind_of_story\":{\"const\":\"once upon a time, there was\"}},"
    "\"required\":[\"the_little_dragon\",\"kind_of_story\"],\"additionalProperties\":false}";

/* Drafts the tokens that come without drafts, up to a random position, and then arbitrary ones. */
static int propose(void *context, struct request *r, int n, int32_t *token)
{
    struct play *p = context;
    if (p->plain == NULL)
        return 0;
    int n_right = random_below(&p->seed, 2) == 0 ? n : random_below(&p->seed, n);
    for (int i = 0, at = (int)r->output.n; i < n; i++, at++)
        token[i] = i < n_right && at < p->plain->n_tokens[r->index] ? p->plain->id[r->index][at]
                                                                    : random_below(&p->seed, p->keeper.n_tokens);
    return n;
}

static void open_play(struct play *p, const char *source, uint64_t seed, int n_blocks)
{
    struct err e = {0};
    *p = (struct play){.seed = seed};
    assert_int_equal(tokenizer_open(&p->tokenizer, "demo/lockstep-stories", &e), 0);
    int vocab = tokenizer_vocab_size(p->tokenizer);
    lexicon_keeper_open(&p->keeper, p->tokenizer, vocab);
    assert_int_equal(form_open_text(&p->form, FORM_SCHEMA, source, strlen(source), &e), 0);
    const struct scheduler_setup setup = {
        .limits = {.max_seqs = SEQS,
                   .max_batch_tokens = 24,
                   .max_len = MAX_LEN,
                   .max_logit_rows = SEQS + DRAFTS,
                   .n_blocks = n_blocks,
                   .mask_words = (vocab + 31) / 32,
                   .max_drafts = DRAFTS},
        .tokenizer = p->tokenizer,
        .lexicon = &p->keeper,
        .prefix_caching = seed % 2,
        .guesses = {.most = 6},
        .drafts = {propose, p},
        .on_release = on_release,
        .context = p,
    };
    assert_int_equal(scheduler_open(&p->scheduler, &setup, &e), 0);
    assert_int_equal(plan_open(&p->plan, &setup.limits, &e), 0);
    assert_int_equal(plan_open(&p->copy, &setup.limits, &e), 0);
    for (int i = 0; i < 2; i++)
        p->rules[i] = (struct request_rules){.max_tokens = 60,
                                             .form = i == 1 ? p->form : NULL,
                                             .skip_special = true,
                                             .n_stop_ids = 1,
                                             .stop_id = {0},
                                             .sampling = {.top_p = 1, .repetition_penalty = 1, .n_eos = 1}};
}

static void close_play(struct play *p)
{
    for (int i = 0; i < N; i++)
        request_close(&p->request[i]);
    scheduler_close(&p->scheduler);
    plan_close(&p->plan);
    plan_close(&p->copy);
    form_close(p->form);
    lexicon_keeper_close(&p->keeper);
    tokenizer_close(&p->tokenizer);
}

static void add(struct play *p, int i)
{
    struct request *r = &p->request[i];
    struct err e = {0};
    int n = 1 + random_below(&p->seed, 30);
    *r = (struct request){.rules = &p->rules[random_below(&p->seed, 3) > 0], .index = i};
    r->prompt = (struct token_list){.id = calloc((size_t)n, sizeof *r->prompt.id), .n = (size_t)n};
    for (int k = 0; k < n; k++)
        r->prompt.id[k] = 3 + random_below(&p->seed, 5);
    assert_int_equal(scheduler_add(&p->scheduler, r, 0, &e), 0);
}

/* len: tokens of the sequence up to the row. */
static uint64_t seed_of(const struct play *p, const struct plan_seq *s, int len)
{
    for (int i = 0; i < N; i++)
        if (p->request[i].state == REQUEST_RUNNING && p->request[i].slot == s->slot)
            return (uint64_t)(1 + i) * 1000 + (uint64_t)len;
    return 1; /* it has ended meanwhile */
}

/* Returns a random token; one of the mask if there is one. */
static int32_t sample(struct play *p, const struct plan_seq *s, int len, const uint32_t *mask)
{
    int words = p->plan.limits.mask_words, n = 0;
    uint64_t own = seed_of(p, s, len), *seed = p->same ? &own : &p->seed;
    if (mask == NULL)
        return 3 + random_below(seed, 100);
    for (int i = 0; i < words; i++)
        n += __builtin_popcount(mask[i]);
    assert_true(n > 0);
    int k = random_below(seed, n);
    for (int32_t id = 0;; id++)
        if ((mask[id / 32] >> id % 32 & 1) && k-- == 0)
            return id;
}

/* Copies the plan as another rank would receive it. */
static void copy_plan(struct play *p)
{
    struct err e = {0};
    size_t bytes = plan_pack(&p->plan);
    assert_true(bytes <= p->plan.message_capacity);
    memcpy(p->copy.message, p->plan.message, bytes);
    assert_int_equal(plan_unpack(&p->copy, bytes, p->keeper.n_tokens, &e), 0);
}

/* Computes its samples once its late masks have arrived. */
static int execute(struct play *p, struct sampled *out)
{
    scheduler_masks(&p->scheduler, &p->plan);
    memcpy(plan_late_masks(&p->copy), plan_late_masks(&p->plan), plan_late_bytes(&p->plan));
    const uint32_t *here = p->copy.mask, *late = plan_late_masks(&p->copy);
    int n = 0, words = p->copy.limits.mask_words;
    for (int i = 0; i < p->copy.n_seqs; i++) {
        const struct plan_seq *s = &p->copy.seq[i];
        for (int len = s->pos + s->n_tokens - s->sample + 1; len <= s->pos + s->n_tokens; len++) {
            const uint32_t *mask = s->masked == MASK_LATE ? late : s->masked == MASK_HERE ? here : NULL;
            out[n++] = (struct sampled){.token = sample(p, s, len, mask), .slot = s->slot};
            here += s->masked == MASK_HERE ? words : 0;
            late += s->masked == MASK_LATE ? words : 0;
            p->n_masks += s->masked == MASK_HERE;
            p->n_late += s->masked == MASK_LATE;
        }
    }
    return n;
}

static bool starts(const struct plan *p, int slot)
{
    for (int i = 0; i < p->n_starts; i++)
        if (p->start[i].slot == slot)
            return true;
    return false;
}

/* Sequences that continue with one token come before those with several, so that the latter's forced text does not
 * change how a step computes the former. */
static void check_front(struct play *p)
{
    int n_alone = 0, n_several = 0;
    for (int i = 0; i < p->copy.n_seqs; i++) {
        const struct plan_seq *s = &p->copy.seq[i];
        if (starts(&p->copy, s->slot))
            continue;
        assert_true(s->n_tokens > 1 || n_several == 0);
        n_alone += s->n_tokens == 1;
        n_several += s->n_tokens > 1;
    }
    p->n_mixed += n_alone > 0 && n_several > 0;
}

/* Does a step of an engine with one or two flights: the results of the step before come after the plan, or before the
 * next one. */
static void one_step(struct play *p, uint64_t step, int flights)
{
    struct err e = {0};
    plan_reset(&p->plan, step);
    scheduler_plan(&p->scheduler, &p->plan, 0);
    for (int i = 0; i < p->scheduler.n_running; i++)
        p->n_barred += p->scheduler.running[i]->barred > 0;
    copy_plan(p);
    check_front(p);
    if (flights == 1)
        p->n_sampled[step % 2] = execute(p, p->sampled[step % 2]);
    if (flights == 1 || step > 0) {
        uint64_t old = step + 1 - (uint64_t)flights;
        const struct step_result result = {
            .step = old, .n_sampled = p->n_sampled[old % 2], .sampled = p->sampled[old % 2]};
        assert_int_equal(scheduler_accept(&p->scheduler, &result, 0, &e), 0);
    }
    if (flights == 2)
        p->n_sampled[step % 2] = execute(p, p->sampled[step % 2]);
}

static void check_texts(const struct play *p, int *n_complete)
{
    for (int i = 0; i < N; i++) {
        const struct request *r = &p->request[i];
        struct err e = {0};
        assert_true(r->finish != FINISH_NONE && r->finish != FINISH_ERROR);
        if (r->rules->form == NULL || r->finish != FINISH_STOP)
            continue;
        bool matches =
            machine_matches(&p->form->grammar.graph, p->form->grammar.start, r->text.data, r->text.bytes, &e);
        if (!matches)
            print_error("request %d: %.*s\n", i, (int)r->text.bytes, r->text.data);
        assert_true(matches);
        (*n_complete)++;
    }
}

static void one_play(uint64_t seed, int flights, int n_blocks, int *n_complete, int *n_masks, int *n_preempted)
{
    struct play p;
    int added = 0;
    open_play(&p, short_keys, seed, n_blocks);
    for (uint64_t step = 0; p.n_released < N; step++) {
        assert_true(step < STEPS);
        if (added < N && random_below(&p.seed, 3) == 0)
            add(&p, added++);
        if (added > 0 && random_below(&p.seed, 60) == 0) {
            int i = random_below(&p.seed, added);
            if (!p.released[i])
                scheduler_cancel(&p.scheduler, &p.request[i], FINISH_CANCELLED, 0);
        }
        one_step(&p, step, flights);
    }
    check_texts(&p, n_complete);
    *n_masks += flights == 1 ? p.n_masks : p.n_late;
    assert_int_equal(p.n_late > 0, flights == 2);
    *n_preempted += p.n_preempted;
    close_play(&p);
}

static void forms_among_free_ones(void **state)
{
    (void)state;
    int n_complete = 0, n_masks = 0, n_preempted = 0;
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (int flights = 1; flights <= 2; flights++)
            one_play(seed, flights, seed % 3 == 0 ? 9 : 40, &n_complete, &n_masks, &n_preempted);
    print_message("%d texts of the form, %d masks, %d preemptions\n", n_complete, n_masks, n_preempted);
    assert_true(n_complete > 150 && n_masks > 1000 && n_preempted > 10);
}

/* Runs all at once, with their log-probabilities or not; with correct drafts, or without. */
static void play_same(struct outcome *out, const char *source, uint64_t seed, int flights, int n_blocks, bool logprobs,
                      const struct outcome *plain)
{
    struct play p;
    *out = (struct outcome){0};
    open_play(&p, source, seed, n_blocks);
    p.same = true;
    p.plain = plain;
    p.rules[0].want_logprobs = p.rules[1].want_logprobs = logprobs;
    for (int i = 0; i < N; i++)
        add(&p, i);
    for (uint64_t step = 0; p.n_released < N; step++, out->n_steps++) {
        assert_true(step < STEPS);
        one_step(&p, step, flights);
    }
    for (int i = 0; i < N; i++) {
        out->n_tokens[i] = (int)p.request[i].output.n;
        memcpy(out->id[i], p.request[i].output.id, p.request[i].output.n * sizeof(int32_t));
    }
    out->n_preempted = p.n_preempted;
    out->n_mixed = p.n_mixed;
    out->n_barred = p.n_barred;
    for (int i = 0; i < DRAFTS_MAX; i++)
        out->n_accepted += p.scheduler.stats.n_accepted[i];
    close_play(&p);
}

/* Forced text is fed together: the same tokens, in fewer steps. A request that wants log-probabilities gets each token
 * sampled. */
static void forced_text_takes_fewer_steps(void **state)
{
    (void)state;
    int n_preempted = 0;
    for (uint64_t seed = 1; seed <= 6; seed++)
        for (int flights = 1; flights <= 2; flights++) {
            struct outcome jumped, sampled;
            int n_blocks = seed % 3 == 0 ? 9 : 40;
            play_same(&jumped, long_keys, seed, flights, n_blocks, false, NULL);
            play_same(&sampled, long_keys, seed, flights, n_blocks, true, NULL);
            print_message("%d steps, %d token by token\n", jumped.n_steps, sampled.n_steps);
            assert_memory_equal(jumped.n_tokens, sampled.n_tokens, sizeof jumped.n_tokens);
            assert_memory_equal(jumped.id, sampled.id, sizeof jumped.id);
            if (n_blocks > 9)
                assert_true(jumped.n_steps * 5 < sampled.n_steps * 4);
            n_preempted += jumped.n_preempted;
            assert_true(jumped.n_mixed > 20);
        }
    assert_true(n_preempted > 5);
}

/* Drafts that the form forbids are not fed; the others change no token, and save as many steps. */
static void drafts_change_no_token(void **state)
{
    (void)state;
    int n_preempted = 0, n_barred = 0;
    for (uint64_t seed = 1; seed <= 6; seed++)
        for (int flights = 1; flights <= 2; flights++)
            for (int logprobs = 0; logprobs < 2; logprobs++) {
                struct outcome plain, drafted;
                const char *source = seed % 2 ? short_keys : long_keys;
                int n_blocks = seed % 3 == 0 ? 12 : 40;
                play_same(&plain, source, seed, flights, n_blocks, logprobs, NULL);
                play_same(&drafted, source, seed, flights, n_blocks, logprobs, &plain);
                print_message("%d steps, %d with drafts: %d accepted, %d forbidden\n", plain.n_steps, drafted.n_steps,
                              (int)drafted.n_accepted, drafted.n_barred);
                assert_memory_equal(plain.n_tokens, drafted.n_tokens, sizeof plain.n_tokens);
                assert_memory_equal(plain.id, drafted.id, sizeof plain.id);
                assert_true(plain.n_accepted == 0 && drafted.n_accepted > 100);
                assert_true(drafted.n_steps < plain.n_steps);
                n_preempted += drafted.n_preempted;
                n_barred += drafted.n_barred;
            }
    assert_true(n_preempted > 5 && n_barred > 500);
}

static int32_t token_of(const struct lexicon *l, const char *text)
{
    size_t bytes;
    int32_t token = lexicon_longest(l, text, strlen(text), &bytes);
    assert_int_equal(bytes, strlen(text));
    return token;
}

/* A draft that ends the text is never fed, and is wrong only where the text may not end. */
static void drafted_ends(void **state)
{
    (void)state;
    static struct play p;
    struct grammar grammar = {0};
    struct grammar_run run;
    struct err e = {0};
    open_play(&p, short_keys, 1, 40);
    const struct lexicon *l = lexicon_keeper_get(&p.keeper, &e);
    assert_int_equal(grammar_of_regex(&grammar, "[a-c]+", 6, &e), 0);
    assert_int_equal(grammar_run_open(&run, &grammar, l, &e), 0);
    struct request r = {.rules = &p.rules[1], .form = &run};
    const struct {
        int32_t draft[3];
        int n, allowed, barred;
    } rows[] = {{{token_of(l, "a"), 0, 0}, 2, 1, 0},
                {{0, token_of(l, "a"), 0}, 2, 0, 1},
                {{token_of(l, "a"), token_of(l, "d"), 0}, 3, 1, 2},
                {{token_of(l, "a"), token_of(l, "b"), token_of(l, "c")}, 3, 3, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memcpy(r.draft, rows[i].draft, sizeof rows[i].draft);
        assert_int_equal(form_allows(&r, rows[i].n), rows[i].allowed);
        assert_int_equal(r.barred, rows[i].barred);
    }
    grammar_run_close(&run);
    grammar_close(&grammar);
    close_play(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms_among_free_ones),
                                       cmocka_unit_test(forced_text_takes_fewer_steps),
                                       cmocka_unit_test(drafts_change_no_token), cmocka_unit_test(drafted_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
