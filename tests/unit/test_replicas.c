/* tests/unit/test_replicas.c - messages between replicas: orders and reports as bytes and back, complete, truncated and
 * damaged; and the choice of a replica for a task. */
#include "tests/unit/unit.h"

#include "coordinator/replicas/order_code.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/replicas/report_code.h"
#include "coordinator/tasks/mailbox.h"

#include <math.h>
#include <stdlib.h>
#include <zmq.h>

#define VOCAB   1000
#define MAX_LEN 500

static const struct order_rules order_rules = {VOCAB, MAX_LEN};

static const char *const stop_text[] = {"\n\n", "the end"};

/* Makes a task of two prompts that uses every rule; beams: a beam search, which excludes some of them. */
static struct task *make_task(uint64_t number, bool beams)
{
    struct task *task = task_open(number, NULL, false, 90);
    struct protocol_generate *g = &task->message.generate;
    struct request_rules *r = &g->rules;
    struct err e = {0};
    g->stream = true;
    task->parsed = true; /* the task frees the message */
    g->search = (struct search){.n = 2, .best_of = beams ? 0 : 4, .num_beams = beams ? 3 : 1};
    g->search.beam = (struct beam_rules){.length_penalty = 0.6, .early_stopping = EARLY_STOPPING_NEVER};
    r->sampling = (struct sampling){.seed = 1ull << 52,
                                    .temperature = beams ? 0 : 0.7f,
                                    .top_p = 0.9f,
                                    .min_p = 0.1f,
                                    .repetition_penalty = beams ? 1 : 1.1f,
                                    .presence_penalty = beams ? 0 : 0.5f,
                                    .frequency_penalty = beams ? 0 : -0.5f,
                                    .top_k = 40,
                                    .min_tokens = 3,
                                    .n_eos = 2,
                                    .eos = {2, 999},
                                    .n_top = 4,
                                    .n_prompt_top = 1};
    if (!beams) {
        r->sampling.n_bias = 2;
        memcpy(r->sampling.bias_id, (const int32_t[]){5, 6}, sizeof(int32_t[2]));
        memcpy(r->sampling.bias, (const float[]){-100, 3.5f}, sizeof(float[2]));
    }
    r->ignore_eos = r->fills = true;
    r->n_stop_ids = 3;
    memcpy(r->stop_id, (const int[]){7, 8, 9}, sizeof(int[3]));
    r->stop = task->message.stop = beams ? NULL : stop_open(2, stop_text, &e);
    r->keep_stop = r->skip_special = r->want_logprobs = r->want_prompt_logprobs = true;
    task->n_choices = 2;
    task->prediction = (struct token_list){calloc(2, sizeof(int32_t)), 2, 2};
    task->prediction.id[1] = 998;
    task->rules = calloc(2, sizeof *task->rules);
    task->choices = calloc(2, sizeof *task->choices);
    task->work.progress = calloc(4, sizeof *task->work.progress);
    for (int i = 0; i < 2; i++) {
        struct token_list prompt = {calloc(3, sizeof(int32_t)), (size_t)(2 + i), 3};
        for (size_t k = 0; k < prompt.n; k++)
            prompt.id[k] = (int32_t)(10 * (i + 1) + (int)k);
        task->rules[i] = *r;
        task->rules[i].max_tokens = 20 + i;
        task->rules[i].sampling.seed += (uint64_t)i;
        assert_int_equal(choices_open(&task->choices[i], &g->search, &task->rules[i], &prompt, &e), 0);
        task->n_prompts++;
        task->choices[i].owner = task;
        task->choices[i].priority = -3;
        task->choices[i].prediction = &task->prediction;
        task->choices[i].deadline = 130;
    }
    return task;
}

static struct wire_out encode_submit(struct task *task)
{
    struct wire_out w = {0};
    order_encode(&w, &(struct order){.kind = ORDER_SUBMIT, .task = task}, 100);
    assert_false(w.failed);
    return w;
}

static void expect_rules(const struct request_rules *a, const struct request_rules *b)
{
    assert_memory_equal(&a->sampling, &b->sampling, sizeof a->sampling);
    assert_int_equal(a->max_tokens, b->max_tokens);
    assert_int_equal(a->fills, b->fills);
    assert_int_equal(a->n_stop_ids, b->n_stop_ids);
    assert_memory_equal(a->stop_id, b->stop_id, sizeof a->stop_id);
    assert_int_equal(a->stop != NULL, b->stop != NULL);
    assert_true(a->stop == NULL || a->stop->n == b->stop->n);
    for (int i = 0; a->stop != NULL && i < a->stop->n; i++)
        assert_string_equal(a->stop->string[i].text, b->stop->string[i].text);
    assert_true(a->ignore_eos == b->ignore_eos && a->keep_stop == b->keep_stop && a->skip_special == b->skip_special &&
                a->want_logprobs == b->want_logprobs && a->want_prompt_logprobs == b->want_prompt_logprobs);
}

/* Orders on another host's clock, which reads 5100 where this one reads 100. */
static void orders(void **state)
{
    (void)state;
    for (int beams = 0; beams < 2; beams++) {
        struct task *task = make_task(42, beams != 0);
        struct wire_out w = encode_submit(task);
        struct err e = {0};
        struct order *o = order_decode(w.data, w.bytes, &order_rules, 5100, &e);
        expect_none(&e);
        assert_int_equal(o->kind, ORDER_SUBMIT);
        struct task *k = o->task;
        assert_int_equal(k->number, 42);
        assert_true(k->arrived == 5090);
        assert_true(k->message.generate.stream);
        assert_int_equal(k->n_prompts, 2);
        assert_int_equal(k->n_choices, 2);
        for (int i = 0; i < 2; i++) {
            const struct choices *a = &task->choices[i], *b = &k->choices[i];
            expect_rules(b->rules, a->rules);
            assert_ptr_equal(b->prediction, &k->prediction);
            assert_true(b->prediction->n == 2 && b->prediction->id[0] == 0 && b->prediction->id[1] == 998);
            assert_int_equal(b->prompt.n, a->prompt.n);
            assert_memory_equal(b->prompt.id, a->prompt.id, a->prompt.n * sizeof *a->prompt.id);
            assert_int_equal(b->priority, -3);
            assert_true(b->deadline == 5130);
            assert_int_equal(b->n_members, a->n_members);
            assert_int_equal(b->search.n, a->search.n);
            assert_int_equal(b->search.best_of, a->search.best_of);
            assert_int_equal(b->search.num_beams, a->search.num_beams);
            assert_true(b->search.beam.length_penalty == 0.6);
            assert_int_equal(b->search.beam.early_stopping, EARLY_STOPPING_NEVER);
        }
        order_free(o);
        wire_free(&w);
        task_close(task);
    }
    static const struct order small[] = {{.kind = ORDER_CANCEL, .number = 7, .why = FINISH_TIMEOUT},
                                         {.kind = ORDER_WITHDRAW, .number = 8},
                                         {.kind = ORDER_STOP}};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        struct wire_out w = {0};
        struct err e = {0};
        order_encode(&w, &small[i], 1);
        struct order *o = order_decode(w.data, w.bytes, &order_rules, 1, &e);
        assert_non_null(o);
        assert_int_equal(o->kind, small[i].kind);
        assert_int_equal(o->number, small[i].number);
        assert_int_equal(o->why, small[i].why);
        order_free(o);
        wire_free(&w);
    }
}

/* A truncated order is refused; a damaged one is refused, or is another order that keeps the rules. */
static void bad_orders(void **state)
{
    (void)state;
    struct task *task = make_task(42, false);
    struct wire_out w = encode_submit(task);
    uint64_t random = 1;
    int n_good = 0;
    for (size_t n = 0; n < w.bytes; n++) {
        struct err e = {0};
        unsigned char *cut = malloc(n + 1); /* allocated separately, so that a sanitizer notices reads past its end */
        memcpy(cut, w.data, n);
        assert_null(order_decode(cut, n, &order_rules, 1, &e));
        assert_int_equal(e.code, ERR_COMM);
        free(cut);
    }
    for (int i = 0; i < 20000; i++) {
        struct err e = {0};
        size_t at = (size_t)random_below(&random, (int)w.bytes);
        unsigned char before = w.data[at];
        w.data[at] = (unsigned char)random_next(&random);
        struct order *o = order_decode(w.data, w.bytes, &order_rules, 1, &e);
        assert_true((o != NULL) == (e.code == ERR_NONE));
        n_good += o != NULL;
        for (int k = 0; o != NULL && o->task != NULL && k < o->task->n_prompts; k++) {
            const struct choices *set = &o->task->choices[k];
            assert_true(set->prompt.n >= 1 && (int)set->prompt.n + set->rules->max_tokens <= MAX_LEN);
            for (size_t t = 0; t < set->prompt.n; t++)
                assert_in_range(set->prompt.id[t], 0, VOCAB - 1);
        }
        order_free(o);
        w.data[at] = before;
    }
    assert_in_range(n_good, 100, 19900);
    wire_put_u8(&w, 0);
    struct err e = {0};
    assert_null(order_decode(w.data, w.bytes, &order_rules, 1, &e));
    EXPECT_PARTS(&e, ERR_COMM, "an order of rank 0", "1 bytes more than expected");
    wire_free(&w);
    task_close(task);
}

/* ---- reports ---- */

static struct task *known[2];

static struct task *find_task(void *context, uint64_t number, bool take)
{
    (void)context;
    for (int i = 0; i < 2; i++)
        if (known[i] != NULL && known[i]->number == number) {
            struct task *task = known[i];
            known[i] = take ? NULL : task;
            return task;
        }
    return NULL;
}

static const struct report_rules report_rules = {VOCAB, 2, find_task, NULL};

static struct sampled make_sampled(int32_t token)
{
    struct sampled s = {.token = token, .logprob = -0.5f};
    for (int k = 0; k < SAMPLING_MAX_TOP; k++) {
        s.top_id[k] = k;
        s.top_logprob[k] = k == 3 ? -INFINITY : -(float)k;
    }
    return s;
}

/* Makes the result of a leader's request. */
static void finish_choice(struct request *r, const struct request_rules *rules, const char *text)
{
    struct err e = {0};
    r->rules = rules;
    for (int32_t i = 0; i < 3; i++) {
        const struct sampled s = make_sampled(100 + i);
        assert_int_equal(request_append(r, &s, &e), 0);
    }
    assert_int_equal(text_append(&r->text, text, strlen(text), &e), 0);
    r->released = strlen(text) - 1; /* the rest may still become a stop string */
    r->finish = FINISH_LENGTH;
}

static struct draft_counts make_drafts(void)
{
    return (struct draft_counts){.n_places = 3, .n_steps = 5, .n_tokens = 15, .n_accepted = {4, 4, 1}};
}

static void finish_task(struct task *task)
{
    for (int i = 0; i < task->n_prompts; i++) {
        struct choices *set = &task->choices[i];
        set->finish = FINISH_STOP;
        set->times = (struct request_times){.arrived = 95, .scheduled = 96, .first_token = 97.5, .finished = 99};
        set->n_cached = 1;
        set->drafts = make_drafts();
        set->prompt_logprobs = calloc(set->prompt.n, sizeof *set->prompt_logprobs);
        set->prompt_logprobs[0] = make_sampled(77);
        for (int c = 0; c < 2; c++)
            finish_choice(set->choice[c], set->rules, c == 0 ? "one h\xc3\xa4" : "two two");
        if (set->score != NULL)
            set->score[1] = -1.25f;
    }
}

static struct report make_report(struct task *a, struct task *b, struct delta *p, struct rank_stats ranks[2])
{
    static char text[] = "pie\0ce";
    static int32_t ids[] = {4, 5};
    static struct sampled logprobs[2];
    logprobs[0] = logprobs[1] = make_sampled(4);
    *p = (struct delta){.task = a,
                        .prompt_index = 1,
                        .choice = 1,
                        .text = text,
                        .bytes = 6,
                        .id = ids,
                        .n_ids = 2,
                        .logprobs = logprobs};
    static struct err why = {.code = ERR_UNSUPPORTED, .text = "a delta's reason"};
    p->finish = FINISH_ERROR;
    p->error = &why;
    finish_task(a);
    finish_task(b);
    a->choices[0].error = (struct err){.code = ERR_MEMORY, .text = "a prompt's reason"};
    b->choices[1].choice[1]->finish = FINISH_ERROR;
    b->choices[1].choice[1]->error = (struct err){.code = ERR_INPUT, .text = "a choice's reason"};
    a->work.next = b;
    b->work.next = NULL;
    (void)protocol_fail(&b->error, PROTOCOL_INTERNAL, "field", "why");
    memset(ranks, 0, 2 * sizeof *ranks);
    (void)snprintf(ranks[1].host, sizeof ranks[1].host, "node7");
    ranks[1].n_steps = 12;
    struct report r = {.loaded = true,
                       .max_len = 77,
                       .n_blocks = 5,
                       .max_seqs = 6,
                       .first = p,
                       .last = p,
                       .done = a,
                       .between_tokens.buckets = &buckets_token,
                       .iteration.buckets = &buckets_iteration,
                       .n_steps = 9,
                       .step_seconds = 1.5,
                       .ranks = ranks,
                       .recent = ranks,
                       .n_ranks = 2};
    r.stats.n_finished[FINISH_STOP] = 3;
    histogram_add(&r.iteration, 8);
    return r;
}

static void expect_err(const struct err *e, const struct err *want)
{
    assert_int_equal(e->code, want->code);
    assert_string_equal(e->text, want->text);
}

static void expect_choice(const struct request *r, const struct request *want)
{
    assert_int_equal(r->finish, want->finish);
    expect_err(&r->error, &want->error);
    assert_int_equal(r->released, want->released);
    assert_int_equal(r->text.bytes, want->released);
    assert_memory_equal(r->text.data, want->text.data, want->released);
    assert_int_equal(r->output.n, 3);
    assert_memory_equal(r->output.id, want->output.id, sizeof(int32_t[3]));
    assert_int_equal(r->logprobs[2].token, 102);
    assert_int_equal(r->logprobs[2].top_id[3], 3);
    assert_true(isinf(r->logprobs[2].top_logprob[3]) && r->logprobs[2].top_logprob[2] == -2);
    assert_int_equal(r->logprobs[2].top_id[4], 0); /* beyond n_top: not sent */
}

static void expect_task(const struct task *task, const struct task *want)
{
    assert_string_equal(task->error.message, want->error.message);
    assert_int_equal(task->error.code, want->error.code);
    for (int i = 0; i < 2; i++) {
        const struct choices *set = &task->choices[i];
        assert_int_equal(set->finish, FINISH_STOP);
        expect_err(&set->error, &want->choices[i].error);
        assert_true(set->times.arrived == 1095 && set->times.scheduled == 1096 && set->times.first_token == 1097.5 &&
                    set->times.finished == 1099);
        assert_int_equal(set->n_cached, 1);
        const struct draft_counts drafts = make_drafts();
        assert_true(set->drafts.n_places == 3 && set->drafts.n_steps == 5 && set->drafts.n_tokens == 15);
        assert_memory_equal(set->drafts.n_accepted, drafts.n_accepted, sizeof drafts.n_accepted);
        assert_int_equal(set->prompt_logprobs[0].token, 77);
        for (int c = 0; c < 2; c++)
            expect_choice(set->choice[c], want->choices[i].choice[c]);
        assert_true(set->score == NULL || set->score[1] == -1.25f);
    }
}

static void reports(void **state)
{
    (void)state;
    struct delta p;
    struct rank_stats ranks[2];
    struct task *a = make_task(1, false), *b = make_task(2, true);
    const struct report r = make_report(a, b, &p, ranks);
    struct wire_out w = {0};
    struct err e = {0};
    report_encode(&w, &r, 100);
    known[0] = make_task(1, false);
    known[1] = make_task(2, true);
    struct task *const mine[2] = {known[0], known[1]};
    struct report *got = report_decode(w.data, w.bytes, &report_rules, 1100, &e);
    expect_none(&e);
    assert_true(got->loaded && !got->ended && got->max_len == 77 && got->n_blocks == 5 && got->max_seqs == 6);
    assert_true(got->n_steps == 9 && got->step_seconds == 1.5 && got->stats.n_finished[FINISH_STOP] == 3);
    assert_int_equal(got->iteration.n, 1);
    assert_int_equal(got->n_ranks, 2);
    assert_string_equal(got->ranks[1].host, "node7");
    assert_ptr_equal(got->first->task, mine[0]);
    assert_true(got->first->prompt_index == 1 && got->first->choice == 1 && got->first->n_ids == 2);
    assert_memory_equal(got->first->text, "pie\0ce", 6);
    expect_err(got->first->error, p.error);
    assert_int_equal(got->first->logprobs[1].top_id[3], 3);
    assert_null(known[0]);
    assert_null(known[1]);
    expect_task(mine[0], a);
    expect_task(mine[1], b);
    assert_true((got->done == mine[0] && mine[0]->work.next == NULL) || got->done == mine[1]);
    steps_report_free(got);
    for (int i = 0; i < 2; i++)
        task_close(mine[i]);
    task_close(a);
    task_close(b);
    wire_free(&w);
}

static void bad_reports(void **state)
{
    (void)state;
    struct delta p;
    struct rank_stats ranks[2];
    struct task *a = make_task(1, false), *b = make_task(2, true);
    const struct report r = make_report(a, b, &p, ranks);
    struct wire_out w = {0};
    uint64_t random = 2;
    int n_good = 0;
    report_encode(&w, &r, 100);
    for (int i = 0; i < 6000; i++) {
        struct err e = {0};
        size_t at = (size_t)random_below(&random, (int)w.bytes), n = i % 2 == 0 ? at : w.bytes;
        unsigned char *damaged = malloc(n + 1);
        memcpy(damaged, w.data, n);
        if (n > at)
            damaged[at] = (unsigned char)random_next(&random);
        struct task *const mine[2] = {known[0] = make_task(1, false), known[1] = make_task(2, true)};
        struct report *got = report_decode(damaged, n, &report_rules, 1100, &e);
        assert_true((got != NULL) == (e.code == ERR_NONE));
        assert_true(n == w.bytes || got == NULL);
        n_good += got != NULL;
        steps_report_free(got);
        for (int k = 0; k < 2; k++)
            task_close(mine[k]);
        free(damaged);
    }
    assert_in_range(n_good, 100, 2990);
    known[0] = known[1] = NULL;
    struct err e = {0};
    assert_null(report_decode(w.data, w.bytes, &report_rules, 1, &e));
    EXPECT_PARTS(&e, ERR_COMM, "a report of a replica", "a delta of a task that does not exist");
    task_close(a);
    task_close(b);
    wire_free(&w);
}

/* More accepted drafts than steps, than at the position before, or than drafts. */
static void bad_drafts(void **state)
{
    (void)state;
    static const struct draft_counts bad[] = {{3, 5, 15, {6}}, {3, 5, 15, {3, 4}}, {2, 5, 6, {4, 3}}, {1, 5, 4, {0}}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct delta p;
        struct rank_stats ranks[2];
        struct task *a = make_task(1, false), *b = make_task(2, true);
        const struct report r = make_report(a, b, &p, ranks);
        struct wire_out w = {0};
        struct err e = {0};
        a->choices[1].drafts = bad[i];
        report_encode(&w, &r, 100);
        struct task *const mine[2] = {known[0] = make_task(1, false), known[1] = make_task(2, true)};
        assert_null(report_decode(w.data, w.bytes, &report_rules, 1100, &e));
        EXPECT_PARTS(&e, ERR_COMM, "a report of a replica", "drafts that were right");
        known[0] = known[1] = NULL;
        for (int k = 0; k < 2; k++)
            task_close(mine[k]);
        task_close(a);
        task_close(b);
        wire_free(&w);
    }
}

/* ---- the choice of a replica ---- */

static void answer(struct replicas *e, int replica, struct task *done, bool loaded)
{
    static struct report r[4];
    int from = -1;
    r[replica] = (struct report){.loaded = loaded, .max_len = 100 + replica, .max_seqs = 2, .done = done};
    assert_true(mailbox_post(e->replica[replica].end[1], &r[replica]));
    assert_true(mailbox_wait(e->replica[replica].end[0], 10000));
    assert_ptr_equal(replicas_take(e, &from), &r[replica]);
    assert_int_equal(from, replica);
}

static void choice(void **state)
{
    (void)state;
    void *context = zmq_ctx_new();
    struct replicas e;
    struct err err = {0};
    assert_int_equal(replicas_open(&e, context, 3, 3, 6, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_false(replicas_loaded(&e));
        answer(&e, i, NULL, true);
    }
    assert_true(replicas_loaded(&e));
    assert_int_equal(replicas_max_seqs(&e), 6);
    assert_int_equal(replicas_max_len(&e, 0), 100); /* the smallest of all replicas */
    struct task *task[6];
    for (int i = 0; i < 6; i++) {
        task[i] = make_task((uint64_t)i, i == 5); /* 2 prompts of 4 sequences, the last one of 3 beams */
        if (i < 3)
            assert_int_equal(replicas_choose(&e, 0, -1, NULL, NULL), i);
        else if (i < 5)
            assert_int_equal(replicas_choose(&e, 0, -1, NULL, NULL), i - 3);
        replicas_submit(&e, task[i], i < 5 ? i % 3 : 2);
        assert_true(task[i]->ticket.in_replica);
    }
    assert_int_equal(e.replica[1].load.n_sequences, 16);
    assert_int_equal(e.replica[2].load.n_sequences, 14);
    assert_int_equal(replicas_choose(&e, 0, -1, NULL, NULL), 2);
    assert_int_equal(replicas_choose(&e, 0, 12, NULL, NULL), -1); /* it already has 2 + 12 sequences */
    assert_int_equal(replicas_choose(&e, 0, 13, NULL, NULL), 2);
    task[1]->work.next = task[4];
    answer(&e, 1, task[1], false);
    assert_false(task[4]->ticket.in_replica);
    assert_int_equal(e.replica[1].load.n_sequences, 0);
    assert_int_equal(e.replica[1].load.n_tokens, 0);
    assert_int_equal(replicas_choose(&e, 0, 0, NULL, NULL), 1);
    /* Orders go to the replica that has the task; withdrawing all and stopping go to all replicas. */
    replicas_cancel(&e, task[2], FINISH_CANCELLED);
    replicas_withdraw(&e, task[0]);
    replicas_withdraw(&e, NULL);
    replicas_stop(&e);
    static const int expected[3] = {2 + 1 + 2, 2 + 2, 2 + 1 + 2};
    for (int i = 0; i < 3; i++) {
        struct order *o;
        int n = 0;
        for (; (o = mailbox_take(e.replica[i].end[1])) != NULL; n++)
            free(o);
        assert_int_equal(n, expected[i]);
    }
    for (int i = 0; i < 6; i++)
        task_close(task[i]);
    replicas_close(&e);
    (void)zmq_ctx_term(context);
}

/* Rank 3 of two replicas of two is the slowest; a replica without a report does not hide it. */
static void figures(void **state)
{
    (void)state;
    void *context = zmq_ctx_new();
    struct replicas e;
    struct err err = {0};
    struct rank_stats ranks[2] = {{.n_parted = 1, .parted_seconds = 1}, {.n_parted = 1, .parted_seconds = 2}};
    struct report r = {.ranks = ranks, .recent = ranks, .n_ranks = 2, .n_steps = 4, .step_seconds = 2};
    double seconds = 0;
    int from = 0;
    assert_int_equal(replicas_open(&e, context, 2, 2, 4, &err), 0);
    assert_int_equal(replicas_slowest(&e), -1);
    for (int i = 1; i >= 0; i--) {
        ranks[1].parted_seconds = i == 1 ? 2 : 1.5;
        ranks[0].joules = ranks[1].joules = 5;
        assert_true(isnan(replicas_joules(&e)));
        assert_true(mailbox_post(e.replica[i].end[1], &r));
        assert_true(mailbox_wait(e.replica[i].end[0], 10000));
        assert_non_null(replicas_take(&e, &from));
        assert_int_equal(replicas_slowest(&e), 3);
    }
    assert_true(replicas_joules(&e) == 20);
    assert_int_equal(replicas_steps(&e, &seconds), 8);
    assert_true(seconds == 4);
    replicas_close(&e);
    (void)zmq_ctx_term(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),      cmocka_unit_test(bad_orders), cmocka_unit_test(reports),
        cmocka_unit_test(bad_reports), cmocka_unit_test(bad_drafts), cmocka_unit_test(choice),
        cmocka_unit_test(figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
