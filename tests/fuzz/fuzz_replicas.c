/* tests/fuzz/fuzz_replicas.c - libFuzzer target for orders and reports of another replica's leader, about tasks or
 * about models that come and go: decoded, used, freed. Its seeds are not kept as files, which would become outdated
 * with the format: with FUZZ_SEEDS=FOLDER it first writes them there and reads each back, or aborts. tests/fuzz/run.sh
 * does so. Besides memory safety: a refusal gives its reason in one line; an accepted order keeps to the limits and
 * encodes to the same content again. */
#include "coordinator/replicas/model_code.h"
#include "coordinator/replicas/order_code.h"
#include "coordinator/replicas/report_code.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB   300
#define MAX_LEN 200
#define N_JOBS  2
#define N_SLOTS 3

int LLVMFuzzerInitialize(int *argc, char ***argv);

static const struct order_rules rules = {VOCAB, MAX_LEN};

static void check_order(const struct order *o)
{
    const struct task *task = o->task;
    for (int i = 0; task != NULL && i < task->n_prompts; i++) {
        const struct choices *set = &task->choices[i];
        must(set->prompt.n >= 1 && (int64_t)set->prompt.n + set->rules->max_tokens <= MAX_LEN);
        for (size_t k = 0; k < set->prompt.n; k++)
            must(set->prompt.id[k] >= 0 && set->prompt.id[k] < VOCAB);
        must(set->rules->sampling.n_top <= SAMPLING_MAX_TOP &&
             (set->rules->stop == NULL || set->rules->stop->n <= STOP_MAX_STRINGS));
    }
}

/* Encodes an accepted order again, to *again. On these clocks its ages are exact multiples of a small power of two, or
 * indistinguishable. false: the order is refused. */
static bool encode_again(struct wire_out *again, const uint8_t *data, size_t size, bool *formed)
{
    struct err e = {0};
    struct order *o = order_decode(data, size, &rules, 0, &e);
    must((o != NULL) == (e.code == ERR_NONE) && strchr(e.text, '\n') == NULL);
    if (o == NULL)
        return false;
    check_order(o);
    order_encode(again, o, 0);
    *formed = o->task != NULL && o->task->form != NULL;
    order_free(o);
    return true;
}

/* The first encoding may write the source of a form differently (spaces, numbers), the second may not. */
static void order(const uint8_t *data, size_t size)
{
    struct wire_out again = {0}, third = {0};
    bool formed = false;
    if (!encode_again(&again, data, size, &formed))
        return;
    must(again.bytes == size || formed);
    if (formed)
        must(encode_again(&third, again.data, again.bytes, &formed) && third.bytes == again.bytes);
    wire_free(&again);
    wire_free(&third);
}

/* ---- reports about existing tasks ---- */

static struct task *known[N_JOBS];

static struct task *find_task(void *context, uint64_t number, bool take)
{
    (void)context;
    struct task *task = number < N_JOBS ? known[number] : NULL;
    if (task != NULL && take)
        known[number] = NULL;
    return task;
}

static struct task *make_task(uint64_t number)
{
    struct task *task = task_open(number, NULL, false, 0);
    struct protocol_generate *g = &task->message.generate;
    struct err e = {0};
    g->search = (struct search){.n = 2, .num_beams = number == 1 ? 2 : 1};
    g->rules.max_tokens = 5;
    g->rules.want_logprobs = true;
    g->rules.sampling = (struct sampling){.n_top = 1, .n_prompt_top = 1, .repetition_penalty = 1};
    task->n_choices = 2;
    task->rules = calloc(1, sizeof *task->rules);
    task->choices = calloc(1, sizeof *task->choices);
    task->work.progress = calloc(2, sizeof *task->work.progress);
    task->rules[0] = g->rules;
    struct token_list prompt = {calloc(2, sizeof(int32_t)), 2, 2};
    must(choices_open(&task->choices[0], &g->search, &task->rules[0], &prompt, &e) == 0);
    task->n_prompts = 1;
    return task;
}

static void report(const uint8_t *data, size_t size)
{
    const struct report_rules is = {VOCAB, 2, find_task, NULL};
    struct task *mine[N_JOBS];
    struct err e = {0};
    for (int i = 0; i < N_JOBS; i++)
        mine[i] = known[i] = make_task((uint64_t)i);
    struct report *r = report_decode(data, size, &is, 0, &e);
    must((r != NULL) == (e.code == ERR_NONE) && strchr(e.text, '\n') == NULL);
    for (const struct delta *p = r != NULL ? r->first : NULL; p != NULL; p = p->next)
        must(p->prompt_index == 0 && p->choice < 2 && (p->logprobs == NULL || p->n_ids > 0));
    for (const struct task *task = r != NULL ? r->done : NULL; task != NULL; task = task->work.next)
        must(task == mine[0] || task == mine[1]);
    steps_report_free(r);
    for (int i = 0; i < N_JOBS; i++)
        task_close(mine[i]);
}

/* ---- reports about models ---- */

static void model_order(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct wire_out again = {0};
    struct model_order *o = model_order_decode(data, size, N_SLOTS, &e);
    must((o != NULL) == (e.code == ERR_NONE) && strchr(e.text, '\n') == NULL);
    if (o == NULL)
        return;
    must(o->slot >= 0 && o->slot < N_SLOTS && o->handle == NULL);
    must(o->kind != MODEL_LOAD || (o->name[0] != '\0' && o->dir[0] != '\0' && o->vocab > 0));
    model_order_encode(&again, o);
    must(again.bytes == size && memcmp(again.data, data, size) == 0);
    wire_free(&again);
    free(o);
}

static void model_word(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct model_word *w = model_word_decode(data, size, N_SLOTS, &e);
    must((w != NULL) == (e.code == ERR_NONE) && strchr(e.text, '\n') == NULL);
    if (w != NULL)
        must(w->slot >= 0 && w->slot < N_SLOTS && strchr(w->why.text, '\n') == NULL &&
             (w->kind == MODEL_FAILED) == (w->why.code != ERR_NONE));
    free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == LINK_REPORT)
        report(data, size);
    else if (size > 0 && data[0] == LINK_MODEL_ORDER)
        model_order(data, size);
    else if (size > 0 && data[0] == LINK_MODEL_WORD)
        model_word(data, size);
    else
        order(data, size);
    return 0;
}

/* ---- seeds ---- */

/* Makes rules with an element in every array, except those that a beam search excludes. */
static void set_rules(struct task *task, bool beams)
{
    static const char *const stop[] = {"\n\n", "ab"};
    static const char schema[] = "{\"type\":\"integer\"}";
    struct request_rules *r = task->rules;
    struct err e = {0};
    task->parsed = true; /* the task frees the message */
    task->prediction = (struct token_list){calloc(2, sizeof(int32_t)), 2, 2};
    r->stop_id[r->n_stop_ids++] = 7;
    r->sampling.eos[r->sampling.n_eos++] = 2;
    if (beams)
        return;
    r->sampling.temperature = 0.7f;
    r->sampling.top_p = 0.9f;
    r->sampling.bias_id[r->sampling.n_bias] = 9;
    r->sampling.bias[r->sampling.n_bias++] = -1;
    r->want_prompt_logprobs = true;
    must(form_open_text(&task->form, FORM_SCHEMA, schema, sizeof schema - 1, &e) == 0);
    r->form = task->form;
    r->stop = task->message.stop = stop_open(2, stop, &e);
    must(r->stop != NULL);
}

static void finish_choices(struct choices *set)
{
    struct err e = {0};
    set->finish = FINISH_LENGTH;
    set->times = (struct request_times){.arrived = 1, .scheduled = 2, .first_token = 3, .finished = 4};
    set->drafts = (struct draft_counts){.n_places = 2, .n_steps = 3, .n_tokens = 6, .n_accepted = {2, 1}};
    set->prompt_logprobs = calloc(set->prompt.n, sizeof *set->prompt_logprobs);
    for (int c = 0; c < 2; c++) {
        struct request *r = set->choice[c];
        const struct sampled token = {.token = 60 + c, .logprob = -0.5f};
        r->rules = set->rules;
        must(request_append(r, &token, &e) == 0 && text_append(&r->text, "a b", 3, &e) == 0);
        r->released = 2;
        r->finish = FINISH_LENGTH;
    }
}

static void write_seed(const char *folder, const char *name, struct wire_out *w)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    must(file != NULL && !w->failed && fwrite(w->data, 1, w->bytes, file) == w->bytes && fclose(file) == 0);
    wire_free(w);
}

static void seed_order(const char *folder, const char *name, const struct order *o)
{
    struct wire_out w = {0};
    struct err e = {0};
    order_encode(&w, o, 0);
    struct order *again = order_decode(w.data, w.bytes, &rules, 0, &e);
    must(again != NULL);
    order_free(again);
    write_seed(folder, name, &w);
}

/* Writes a report with a piece of task a and the ends of both. */
static void seed_report(const char *folder, struct task *a, struct task *b)
{
    char text[] = "pi\0e";
    int32_t ids[] = {4};
    struct sampled logprobs[1] = {{.token = 4, .logprob = -1}};
    struct rank_stats ranks[2] = {{.host = "node1"}, {.host = "node2"}};
    struct delta p = {.task = a, .choice = 1, .text = text, .bytes = 4, .id = ids, .n_ids = 1, .logprobs = logprobs};
    struct report r = {.loaded = true,
                       .max_len = MAX_LEN,
                       .n_blocks = 5,
                       .max_seqs = 6,
                       .first = &p,
                       .last = &p,
                       .done = a,
                       .between_tokens.buckets = &buckets_token,
                       .iteration.buckets = &buckets_iteration,
                       .ranks = ranks,
                       .recent = ranks,
                       .n_ranks = 2};
    const struct report_rules is = {VOCAB, 2, find_task, NULL};
    struct wire_out w = {0};
    struct err e = {0};
    a->work.next = b;
    finish_choices(&a->choices[0]);
    finish_choices(&b->choices[0]);
    report_encode(&w, &r, 5);
    for (int i = 0; i < N_JOBS; i++)
        known[i] = make_task((uint64_t)i);
    struct task *const mine[N_JOBS] = {known[0], known[1]};
    struct report *again = report_decode(w.data, w.bytes, &is, 5, &e);
    must(again != NULL);
    steps_report_free(again);
    for (int i = 0; i < N_JOBS; i++)
        task_close(mine[i]);
    write_seed(folder, "report", &w);
}

static void seed_models(const char *folder)
{
    const struct model_order load = {.kind = MODEL_LOAD, .slot = 1, .name = "m", .dir = "/m", .vocab = 9};
    struct model_word failed = {.kind = MODEL_FAILED, .slot = 2};
    struct wire_out w = {0};
    ERR(&failed.why, ERR_INPUT, "no such file");
    model_order_encode(&w, &load);
    model_order(w.data, w.bytes);
    write_seed(folder, "load", &w);
    model_word_encode(&w, &failed);
    model_word(w.data, w.bytes);
    write_seed(folder, "failed", &w);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *folder = getenv("FUZZ_SEEDS");
    (void)argc;
    (void)argv;
    if (folder == NULL)
        return 0;
    struct task *a = make_task(0), *b = make_task(1);
    set_rules(a, false);
    set_rules(b, true);
    seed_order(folder, "order", &(struct order){.kind = ORDER_SUBMIT, .task = a});
    seed_order(folder, "order-beams", &(struct order){.kind = ORDER_SUBMIT, .task = b});
    seed_order(folder, "cancel", &(struct order){.kind = ORDER_CANCEL, .number = 7, .why = FINISH_TIMEOUT});
    seed_order(folder, "withdraw", &(struct order){.kind = ORDER_WITHDRAW, .number = 8});
    seed_order(folder, "stop", &(struct order){.kind = ORDER_STOP});
    seed_report(folder, a, b);
    seed_models(folder);
    task_close(a);
    task_close(b);
    return 0;
}
