/* coordinator/replicas/order_code.c - see order_code.h. */
#include "coordinator/replicas/order_code.h"

#include "text/grammar/form.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROMPTS PROTOCOL_MAX_SEQUENCES

/* A field more has to travel, too: see to it, then change the size. */
_Static_assert(sizeof(struct order) == 32 && sizeof(struct request_rules) == 2824 && sizeof(struct sampling) == 2528 &&
                   sizeof(struct search) == 32,
               "put_... and get_... know every field");

/* ---- out ---- */

static void put_sampling(struct wire_out *w, const struct sampling *s)
{
    const float real[] = {s->temperature,      s->top_p, s->min_p, s->repetition_penalty, s->presence_penalty,
                          s->frequency_penalty};
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
        wire_put_f32(w, real[i]);
    wire_put_i32(w, s->top_k);
    wire_put_i32(w, s->min_tokens);
    wire_put_i32(w, s->n_top);
    wire_put_i32(w, s->n_prompt_top);
    wire_put_array(w, s->eos, (size_t)s->n_eos, sizeof s->eos[0]);
    wire_put_array(w, s->bias_id, (size_t)s->n_bias, sizeof s->bias_id[0]);
    wire_put(w, s->bias, (size_t)s->n_bias * sizeof s->bias[0]);
}

static void put_rules(struct wire_out *w, const struct request_rules *r)
{
    const bool flag[] = {r->ignore_eos, r->keep_stop,     r->skip_special,
                         r->parsed,     r->want_logprobs, r->want_prompt_logprobs};
    put_sampling(w, &r->sampling);
    for (size_t i = 0; i < sizeof flag / sizeof flag[0]; i++)
        wire_put_u8(w, flag[i]);
    wire_put_u8(w, r->form != NULL ? (unsigned char)r->form->kind : 0);
    if (r->form != NULL)
        wire_put_array(w, r->form->source, r->form->bytes, 1);
    wire_put_array(w, r->stop_id, (size_t)r->n_stop_ids, sizeof r->stop_id[0]);
    int n_stop = r->stop != NULL ? r->stop->n : 0;
    wire_put_u64(w, (uint64_t)n_stop);
    for (int i = 0; i < n_stop; i++)
        wire_put_array(w, r->stop->string[i].text, r->stop->string[i].bytes, 1);
}

static void put_search(struct wire_out *w, const struct search *s)
{
    wire_put_i32(w, s->n);
    wire_put_i32(w, s->best_of);
    wire_put_i32(w, s->num_beams);
    wire_put_f64(w, s->beam.length_penalty);
    wire_put_i32(w, (int32_t)s->beam.early_stopping);
}

/* The rules of a task's prompts differ in max_tokens, fills and seed only (task_prepare), its replicas share priority
 * and deadline. */
static void put_task(struct wire_out *w, const struct task *task, double now)
{
    const struct choices *first = &task->choices[0];
    wire_put_u64(w, task->number);
    wire_put_u64(w, task->asker);
    wire_put_u64(w, task->party);
    wire_put_f64(w, now - task->arrived);
    wire_put_u8(w, task->message.generate.stream);
    wire_put_i32(w, first->priority);
    wire_put_u8(w, first->deadline > 0);
    wire_put_f64(w, first->deadline > 0 ? first->deadline - now : 0);
    put_search(w, &first->search);
    put_rules(w, first->rules);
    wire_put_array(w, task->prediction.id, task->prediction.n, sizeof task->prediction.id[0]);
    wire_put_u64(w, (uint64_t)task->n_prompts);
    for (int i = 0; i < task->n_prompts; i++) {
        const struct choices *set = &task->choices[i];
        wire_put_i32(w, set->rules->max_tokens);
        wire_put_u8(w, set->rules->fills);
        wire_put_u64(w, set->rules->sampling.seed);
        wire_put_array(w, set->prompt.id, set->prompt.n, sizeof set->prompt.id[0]);
    }
}

void order_encode(struct wire_out *w, const struct order *o, double now)
{
    if (o->kind == ORDER_SUBMIT) {
        wire_put_u8(w, LINK_SUBMIT);
        put_task(w, o->task, now);
    } else if (o->kind == ORDER_CANCEL) {
        wire_put_u8(w, LINK_CANCEL);
        wire_put_u64(w, o->number);
        wire_put_i32(w, (int32_t)o->why);
    } else if (o->kind == ORDER_WITHDRAW) {
        wire_put_u8(w, LINK_WITHDRAW);
        wire_put_u64(w, o->number);
    } else {
        wire_put_u8(w, LINK_STOP);
    }
}

/* ---- in ---- */

static void check_ids(struct wire_in *w, const int32_t *id, size_t n, int vocab, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= vocab)
            wire_fail(w, what);
}

/* Ids to an array of fixed size. */
static int get_ids(struct wire_in *w, int32_t *id, size_t most, int vocab, const char *what)
{
    size_t n = wire_get_count(w, most, sizeof *id, what);
    (void)wire_get(w, id, n * sizeof *id);
    check_ids(w, id, n, vocab, what);
    return w->wrong == NULL ? (int)n : 0;
}

static void get_sampling(struct wire_in *w, struct sampling *s, int vocab)
{
    float *const real[] = {&s->temperature,      &s->top_p, &s->min_p, &s->repetition_penalty, &s->presence_penalty,
                           &s->frequency_penalty};
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
        *real[i] = wire_get_f32(w);
    if (s->temperature < 0 || s->repetition_penalty <= 0)
        wire_fail(w, "temperature or repetition_penalty");
    s->top_k = wire_get_i32(w, 0, INT32_MAX, "top_k");
    s->min_tokens = wire_get_i32(w, 0, INT32_MAX, "min_tokens");
    s->n_top = wire_get_i32(w, 0, SAMPLING_MAX_TOP, "the number of log-probabilities");
    s->n_prompt_top = wire_get_i32(w, 0, SAMPLING_MAX_TOP, "the number of log-probabilities of a prompt");
    s->n_eos = get_ids(w, s->eos, SAMPLING_MAX_EOS, vocab, "ids that end a text");
    s->n_bias = get_ids(w, s->bias_id, SAMPLING_MAX_BIAS, vocab, "ids with a bias");
    for (int i = 0; i < s->n_bias; i++)
        s->bias[i] = wire_get_f32(w);
}

static void get_stop_texts(struct wire_in *w, struct protocol_message *m)
{
    size_t n = wire_get_count(w, STOP_MAX_STRINGS, sizeof(uint64_t), "the number of stop texts");
    char *text[STOP_MAX_STRINGS] = {NULL};
    struct err e = {0};
    for (size_t i = 0, one; i < n && w->wrong == NULL; i++) {
        text[i] = wire_get_array(w, &one, STOP_MAX_BYTES, 1, "a stop text");
        if (text[i] == NULL || one == 0 || strlen(text[i]) != one)
            wire_fail(w, "a stop text that is empty, or has a NUL in it");
    }
    if (n > 0 && w->wrong == NULL)
        m->stop = stop_open((int)n, (const char *const *)text, &e);
    if (e.code != ERR_NONE)
        wire_fail(w, "host memory");
    m->generate.rules.stop = m->stop;
    for (size_t i = 0; i < STOP_MAX_STRINGS; i++)
        free(text[i]);
}

static void get_form(struct wire_in *w, struct task *task)
{
    unsigned kind = wire_get_u8(w);
    size_t bytes = 0;
    struct err e = {0};
    if (kind == 0)
        return;
    if (kind >= FORM_KINDS)
        wire_fail(w, "the kind of a form");
    char *source = wire_get_array(w, &bytes, FORM_MAX_BYTES, 1, "the form of an answer");
    if (w->wrong == NULL && form_open_text(&task->form, (enum form_kind)kind, source, bytes, &e) != 0)
        wire_fail(w, "the form of an answer");
    free(source);
}

static void get_rules(struct wire_in *w, struct task *task, int vocab)
{
    struct protocol_message *m = &task->message;
    struct request_rules *r = &m->generate.rules;
    bool *const flag[] = {&r->ignore_eos, &r->keep_stop,     &r->skip_special,
                          &r->parsed,     &r->want_logprobs, &r->want_prompt_logprobs};
    get_sampling(w, &r->sampling, vocab);
    for (size_t i = 0; i < sizeof flag / sizeof flag[0]; i++)
        *flag[i] = wire_get_bool(w);
    get_form(w, task);
    r->form = task->form;
    r->n_stop_ids = get_ids(w, r->stop_id, REQUEST_MAX_STOP_IDS, vocab, "ids to stop at");
    get_stop_texts(w, m);
}

static void get_search(struct wire_in *w, struct search *s)
{
    s->n = wire_get_i32(w, 1, RULES_MAX_CHOICES, "n");
    s->best_of = wire_get_i32(w, 0, RULES_MAX_CHOICES, "best_of");
    s->num_beams = wire_get_i32(w, 1, BEAM_MAX, "num_beams");
    s->beam.length_penalty = wire_get_f64(w);
    s->beam.early_stopping =
        (enum early_stopping)wire_get_i32(w, EARLY_STOPPING_FALSE, EARLY_STOPPING_NEVER, "early_stopping");
}

/* Prompt i of the task gets choices i. */
static void get_choices(struct wire_in *w, struct task *task, int i, const struct order_rules *is)
{
    const struct protocol_generate *g = &task->message.generate;
    struct request_rules *rules = &task->rules[i];
    struct token_list prompt = {0};
    struct err e = {0};
    const char *field = "";
    *rules = g->rules;
    rules->max_tokens = wire_get_i32(w, 1, is->max_len, "max_tokens");
    rules->fills = wire_get_bool(w);
    rules->sampling.seed = wire_get_u64(w);
    prompt.id = wire_get_array(w, &prompt.n, (size_t)is->max_len, sizeof *prompt.id, "a prompt");
    prompt.capacity = prompt.n;
    check_ids(w, prompt.id, prompt.n, is->vocab, "a prompt's token");
    if (prompt.n < 1 || (int64_t)prompt.n + rules->max_tokens > is->max_len)
        wire_fail(w, "a prompt's length");
    if (search_check(&g->search, rules, &field, &e) != 0)
        wire_fail(w, "the search");
    if (w->wrong != NULL) {
        token_list_free(&prompt);
        return;
    }
    if (choices_open(&task->choices[i], &g->search, rules, &prompt, &e) != 0)
        wire_fail(w, "host memory");
    task->n_prompts++;
}

static void get_task(struct wire_in *w, struct task *task, const struct order_rules *is, double now)
{
    struct protocol_generate *g = &task->message.generate;
    task->parsed = true; /* the message's texts are this task's to free */
    task->number = wire_get_u64(w);
    task->asker = wire_get_u64(w);
    task->party = wire_get_u64(w);
    task->arrived = now - wire_get_f64(w);
    g->stream = wire_get_bool(w);
    g->priority = wire_get_i32(w, INT32_MIN, INT32_MAX, "priority");
    bool bounded = wire_get_bool(w);
    double deadline = now + wire_get_f64(w);
    get_search(w, &g->search);
    get_rules(w, task, is->vocab);
    task->prediction.id =
        wire_get_array(w, &task->prediction.n, (size_t)is->max_len, sizeof task->prediction.id[0], "a prediction");
    task->prediction.capacity = task->prediction.n;
    check_ids(w, task->prediction.id, task->prediction.n, is->vocab, "a prediction's token");
    /* A prompt has at least max_tokens and whether they fill the context, seed, a length and an id. */
    size_t n = wire_get_count(w, MAX_PROMPTS, 4 + 1 + 8 + 8 + 4, "the number of prompts");
    if (n < 1 || n * (size_t)g->search.n > MAX_PROMPTS)
        wire_fail(w, "the number of prompts");
    if (n < 1 || w->wrong != NULL)
        return;
    task->n_choices = g->search.n;
    task->rules = calloc(n, sizeof *task->rules);
    task->choices = calloc(n, sizeof *task->choices);
    /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): neither is 0, or wire_fail() was called */
    task->work.progress = calloc(n * (size_t)task->n_choices, sizeof *task->work.progress);
    if (task->rules == NULL || task->choices == NULL || task->work.progress == NULL) {
        wire_fail(w, "host memory");
        return;
    }
    for (size_t i = 0; i < n && w->wrong == NULL; i++)
        get_choices(w, task, (int)i, is);
    for (int i = 0; i < task->n_prompts; i++) {
        task->choices[i].owner = task;
        task->choices[i].prediction = &task->prediction;
        task->choices[i].client = task->asker;
        task->choices[i].party = task->party;
        task->choices[i].priority = g->priority;
        task->choices[i].deadline = bounded ? deadline : 0;
    }
}

static void get_order(struct wire_in *w, struct order *o, const struct order_rules *rules, double now)
{
    unsigned kind = wire_get_u8(w);
    if (kind == LINK_SUBMIT) {
        o->kind = ORDER_SUBMIT;
        o->task = task_open(0, NULL, false, now);
        if (o->task == NULL)
            wire_fail(w, "host memory");
        else
            get_task(w, o->task, rules, now);
    } else if (kind == LINK_CANCEL) {
        o->kind = ORDER_CANCEL;
        o->number = wire_get_u64(w);
        o->why = (enum finish_reason)wire_get_i32(w, FINISH_NONE, FINISH_ERROR, "a reason");
    } else if (kind == LINK_WITHDRAW) {
        o->kind = ORDER_WITHDRAW;
        o->number = wire_get_u64(w);
    } else if (kind == LINK_STOP) {
        o->kind = ORDER_STOP;
    } else {
        wire_fail(w, "the message's kind");
    }
}

struct order *order_decode(const void *data, size_t bytes, const struct order_rules *rules, double now, struct err *e)
{
    struct wire_in w = {data, bytes, NULL};
    struct order *o = err_calloc(e, 1, sizeof *o, "order");
    if (o == NULL)
        return NULL;
    get_order(&w, o, rules, now);
    if (wire_end(&w, "an order of rank 0", e) == 0)
        return o;
    order_free(o);
    return NULL;
}

void order_free(struct order *o)
{
    if (o != NULL)
        task_close(o->task);
    free(o);
}
