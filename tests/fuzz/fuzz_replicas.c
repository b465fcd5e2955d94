/* tests/fuzz/fuzz_replicas.c - an order or a report from another replica's leader, as bytes from anywhere: decoded,
 * used, freed.
 *
 * Besides memory safety: a refusal says why in one line; an accepted order keeps to the limits; what an accepted order
 * says is said by its own encoding again. */
#include "coordinator/replicas/order_code.h"
#include "coordinator/replicas/report_code.h"

#include <stdlib.h>
#include <string.h>

#define VOCAB   300
#define MAX_LEN 200
#define N_JOBS  2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct order_rules rules = {VOCAB, MAX_LEN};

static void check(bool good)
{
    if (!good)
        abort();
}

static void check_order(const struct order *o)
{
    const struct task *j = o->task;
    for (int i = 0; j != NULL && i < j->n_prompts; i++) {
        const struct choices *set = &j->choices[i];
        check(set->prompt.n >= 1 && (int64_t)set->prompt.n + set->rules->max_tokens <= MAX_LEN);
        for (size_t k = 0; k < set->prompt.n; k++)
            check(set->prompt.id[k] >= 0 && set->prompt.id[k] < VOCAB);
        check(set->rules->sampling.n_top <= SAMPLING_MAX_TOP &&
              (set->rules->stop == NULL || set->rules->stop->n <= STOP_MAX_STRINGS));
    }
}

/* Its ages are exact multiples of a small power of two on these clocks, or not told apart. */
static void order(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct wire_out again = {0};
    struct order *o = order_decode(data, size, &rules, 0, &e);
    check((o != NULL) == (e.code == ERR_NONE) && strchr(e.text, '\n') == NULL);
    if (o == NULL)
        return;
    check_order(o);
    order_encode(&again, o, 0);
    check(again.bytes == size);
    wire_free(&again);
    order_free(o);
}

/* ---- reports, of tasks that are there ---- */

static struct task *known[N_JOBS];

static struct task *find(void *context, uint64_t number, bool take)
{
    (void)context;
    struct task *j = number < N_JOBS ? known[number] : NULL;
    if (j != NULL && take)
        known[number] = NULL;
    return j;
}

static struct task *make_task(uint64_t number)
{
    struct task *j = task_open(number, NULL, false, 0);
    struct protocol_generate *g = &j->message.generate;
    struct err e = {0};
    g->search = (struct search){.n = 2, .num_beams = number == 1 ? 2 : 1};
    g->rules.max_tokens = 5;
    g->rules.want_logprobs = true;
    g->rules.sampling = (struct sampling){.n_top = 1, .n_prompt_top = 1, .repetition_penalty = 1};
    j->n_choices = 2;
    j->rules = calloc(1, sizeof *j->rules);
    j->choices = calloc(1, sizeof *j->choices);
    j->work.progress = calloc(2, sizeof *j->work.progress);
    j->rules[0] = g->rules;
    struct token_list prompt = {calloc(2, sizeof(int32_t)), 2, 2};
    check(choices_open(&j->choices[0], &g->search, &j->rules[0], &prompt, &e) == 0);
    j->n_prompts = 1;
    return j;
}

static void report(const uint8_t *data, size_t size)
{
    const struct report_rules is = {VOCAB, 2, find, NULL};
    struct task *mine[N_JOBS];
    struct err e = {0};
    for (int i = 0; i < N_JOBS; i++)
        mine[i] = known[i] = make_task((uint64_t)i);
    struct report *r = report_decode(data, size, &is, 0, &e);
    check((r != NULL) == (e.code == ERR_NONE) && strchr(e.text, '\n') == NULL);
    for (const struct delta *p = r != NULL ? r->first : NULL; p != NULL; p = p->next)
        check(p->prompt_index == 0 && p->choice < 2 && (p->logprobs == NULL || p->n_ids > 0));
    for (const struct task *j = r != NULL ? r->done : NULL; j != NULL; j = j->work.next)
        check(j == mine[0] || j == mine[1]);
    steps_report_free(r);
    for (int i = 0; i < N_JOBS; i++)
        task_close(mine[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == LINK_REPORT)
        report(data, size);
    else
        order(data, size);
    return 0;
}
