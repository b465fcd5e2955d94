/* coordinator/tasks/task.c - see task.h. */
#include "coordinator/tasks/task.h"
#include "text/calls/calls.h"
#include "text/grammar/form.h"

#include <stdlib.h>
#include <string.h>

struct task *task_open(uint64_t number, zmq_msg_t *body, bool delimiter, double now)
{
    struct task *task = calloc(1, sizeof *task);
    if (task == NULL) {
        if (body != NULL)
            (void)zmq_msg_close(body);
        return NULL;
    }
    task->number = number;
    task->arrived = now;
    task->delimiter = delimiter;
    task->ticket.model = -1;
    (void)zmq_msg_init(&task->body);
    if (body != NULL) {
        task->message_bytes = zmq_msg_size(body);
        (void)zmq_msg_move(&task->body, body);
    }
    return task;
}

void task_close(struct task *task)
{
    if (task == NULL)
        return;
    for (int i = 0; i < task->n_prompts; i++)
        choices_close(&task->choices[i]);
    for (int i = 0; i < task->n_ids; i++) {
        token_list_free(&task->ids[i]);
        if (task->echo != NULL)
            free(task->echo[i].text);
    }
    for (int i = 0; task->reader != NULL && i < task->n_ids * task->n_choices; i++)
        calls_close(task->reader[i]);
    free(task->reader);
    free(task->echo);
    free(task->ids);
    token_list_free(&task->prediction);
    free(task->choices);
    form_close(task->form);
    free(task->rules);
    free(task->work.progress);
    free(task->ticket.echoed);
    free(task->reply);
    if (task->parsed)
        protocol_message_close(&task->message);
    (void)zmq_msg_close(&task->body);
    free(task);
}

void task_find_id(struct task *task)
{
    protocol_find_id(zmq_msg_data(&task->body), zmq_msg_size(&task->body), task->request_id);
}

void task_read(struct task *task)
{
    (void)protocol_read(&task->message, zmq_msg_data(&task->body), zmq_msg_size(&task->body), &task->error);
    if (task->message.root == NULL)
        task_find_id(task);
    task->parsed = true;
    (void)zmq_msg_close(&task->body);
    (void)zmq_msg_init(&task->body);
    if (task->message.request_id != NULL)
        (void)snprintf(task->request_id, sizeof task->request_id, "%s", task->message.request_id);
}

void task_check(struct task *task)
{
    static const struct protocol_model none = {0};
    (void)protocol_check(&task->message, task->served != NULL ? &task->served->model : &none, !task->delimiter,
                         &task->error);
    task->checked = true;
}

/* Clients recognise the failure by these words, which are OpenAI's. */
#define MOST "This model's maximum context length is %d tokens, prompt and output together"

/* Checks one prompt: all of max_tokens must fit beside it. */
static int fit_prompt(struct task *task, int i, int max_len)
{
    int64_t n = (int64_t)task->ids[i].n;
    struct request_rules *rules = &task->rules[i];
    char field[64] = "prompt";
    if (task->message.generate.n_turns > 0)
        (void)snprintf(field, sizeof field, "messages");
    else if (task->n_ids > 1)
        (void)snprintf(field, sizeof field, "prompt[%d]", i);
    if (n < 1)
        return protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, field, "no tokens, expected at least one");
    if (n >= max_len)
        return protocol_fail(&task->error, PROTOCOL_TOO_LARGE, field, "%lld tokens, expected fewer than %d. " MOST,
                             (long long)n, max_len, max_len);
    rules->fills = rules->max_tokens == PROTOCOL_FILL;
    if (rules->fills)
        rules->max_tokens = (int)(max_len - n);
    if (n + rules->max_tokens > max_len)
        return protocol_fail(&task->error, PROTOCOL_TOO_LARGE, task->message.generate.limit_field,
                             "%lld prompt tokens + %d = %lld, expected at most %d. " MOST, (long long)n,
                             rules->max_tokens, (long long)n + rules->max_tokens, max_len, max_len);
    return 0;
}

/* Makes the incremental parsers for a stream's answers. */
static int open_readers(struct task *task)
{
    int n = task->n_ids * task->n_choices;
    bool good = true;
    if (!calls_any(task->calls) || !task->message.generate.stream)
        return 0;
    task->reader = calloc((size_t)n, sizeof *task->reader);
    for (int i = 0; task->reader != NULL && i < n; i++)
        good = (task->reader[i] = calls_open(task->calls)) != NULL && good;
    return task->reader != NULL && good ? 0 : protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "out of host memory");
}

static int open_choices(struct task *task, int i)
{
    const struct protocol_generate *g = &task->message.generate;
    struct choices *choices = &task->choices[i];
    struct err e = {0};
    const char *field = "";
    if (search_check(&g->search, &task->rules[i], &field, &e) != 0)
        return protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, field, "%s", e.text);
    if (choices_open(choices, &g->search, &task->rules[i], &task->ids[i], &e) != 0)
        return protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "%s", e.text);
    task->n_prompts++;
    choices->owner = task;
    choices->prediction = &task->prediction;
    choices->client = task->asker;
    choices->party = task->party;
    choices->priority = g->priority;
    choices->deadline = g->timeout_ms > 0 ? task->arrived + 1e-3 * (double)g->timeout_ms : 0;
    return 0;
}

/* Bytes of JSON per token: its id and some text, and per log-probability an id, a text, its bytes and a number. */
#define TOKEN_BYTES   16
#define LOGPROB_BYTES 96

/* The parts of a reply's maximum size. */
struct reply_demand {
    int64_t scores, tokens;                /* scored tokens of prompts; generated ones that are not streamed */
    int64_t of_scores, of_tokens, of_echo; /* bytes of JSON */
};

int64_t task_text_bytes(const char *text, size_t bytes)
{
    int64_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        n += c < 0x20 ? 6 : c == '"' || c == '\\' ? 2 : 1;
    }
    return n;
}

int64_t task_echo_bytes(const struct task *task, int i)
{
    const struct protocol_generate *g = &task->message.generate;
    if (g->prompt != NULL && g->prompt[i].text != NULL)
        return task_text_bytes(g->prompt[i].text, g->prompt[i].bytes);
    return (int64_t)task->ids[i].n * TOKEN_BYTES;
}

/* Every choice repeats the prompt, and its scores. */
static void add_prompt(struct reply_demand *d, const struct task *task, int i)
{
    const struct protocol_generate *g = &task->message.generate;
    int64_t n = g->search.n, n_prompt = (int64_t)task->ids[i].n;
    if (g->rules.want_prompt_logprobs)
        d->scores += n * n_prompt;
    if (!g->stream)
        d->tokens += n * task->rules[i].max_tokens;
    if (g->echo)
        d->of_echo += n * task_echo_bytes(task, i);
    if (g->return_ids)
        d->of_echo += n * n_prompt * TOKEN_BYTES;
}

/* A stream's tokens are in small events, but the scores of its prompts are in the last one. */
static struct reply_demand demand_of(const struct task *task)
{
    const struct request_rules *rules = &task->message.generate.rules;
    struct reply_demand d = {0};
    for (int i = 0; i < task->n_ids; i++)
        add_prompt(&d, task, i);
    d.of_scores = d.scores * (1 + rules->sampling.n_prompt_top) * LOGPROB_BYTES;
    d.of_tokens = d.tokens * (TOKEN_BYTES + (rules->want_logprobs ? (1 + rules->sampling.n_top) * LOGPROB_BYTES : 0));
    return d;
}

/* The memory held for it until it is written: includes candidates that are not among the best, and a prompt's scores
 * once. */
static size_t result_bytes(const struct task *task)
{
    const struct protocol_generate *g = &task->message.generate;
    int64_t sequences = g->search.num_beams > g->search.n ? g->search.num_beams : g->search.n, bytes = 0;
    sequences = g->search.best_of > sequences ? g->search.best_of : sequences;
    for (int i = 0; i < task->n_ids; i++) {
        bytes += sequences * task->rules[i].max_tokens *
                 (TOKEN_BYTES + (g->rules.want_logprobs ? (int64_t)sizeof(struct sampled) : 0));
        if (g->rules.want_prompt_logprobs)
            bytes += (int64_t)(task->ids[i].n * sizeof(struct sampled));
        if (task->echo != NULL)
            bytes += (int64_t)task->echo[i].bytes;
    }
    return (size_t)bytes;
}

static int bound_reply(struct task *task, int64_t max_reply)
{
    const struct protocol_generate *g = &task->message.generate;
    const struct request_rules *rules = &g->rules;
    const struct reply_demand d = demand_of(task);
    int64_t bytes = d.of_scores + d.of_tokens + d.of_echo;
    task->result_bytes = result_bytes(task);
    if (bytes <= max_reply)
        return 0;
    const char *field = d.of_scores >= d.of_tokens && d.of_scores >= d.of_echo ? "prompt_logprobs"
                        : d.of_echo >= d.of_tokens                             ? (g->echo ? "echo" : "return_token_ids")
                        : rules->want_logprobs                                 ? "logprobs"
                                                                               : g->limit_field;
    return protocol_fail(&task->error, PROTOCOL_TOO_LARGE, field,
                         "the reply may take %lld bytes (%lld scored prompt tokens x %d log-probabilities, %lld tokens "
                         "x %d, %lld bytes of prompts), expected at most %lld (--max-reply-bytes)",
                         (long long)bytes, (long long)d.scores, d.scores > 0 ? 1 + rules->sampling.n_prompt_top : 0,
                         (long long)d.tokens, rules->want_logprobs ? 1 + rules->sampling.n_top : 0,
                         (long long)d.of_echo, (long long)max_reply);
}

static void shorten(struct token_list *list, size_t most)
{
    if (list->n <= most)
        return;
    int32_t *less = realloc(list->id, most * sizeof *less);
    list->id = less != NULL ? less : list->id;
    list->n = list->capacity = most;
}

int task_prepare(struct task *task, int max_len, int64_t max_reply, uint64_t seed)
{
    const struct protocol_generate *g = &task->message.generate;
    size_t n = (size_t)task->n_ids, choices = n * (size_t)g->search.n;
    task->seed = g->has_seed ? g->rules.sampling.seed : seed;
    task->n_choices = g->search.n;
    task->rules = calloc(n, sizeof *task->rules);
    task->choices = calloc(n, sizeof *task->choices);
    task->work.progress = calloc(choices, sizeof *task->work.progress);
    task->ticket.echoed = calloc(choices, sizeof *task->ticket.echoed);
    if (task->rules == NULL || task->choices == NULL || task->work.progress == NULL || task->ticket.echoed == NULL)
        return protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "out of host memory");
    shorten(&task->prediction, (size_t)max_len); /* no answer can be longer */
    for (int i = 0; i < task->n_ids; i++) {
        task->rules[i] = g->rules;
        task->rules[i].form = task->form;
        task->rules[i].sampling.seed = task->seed;
        task->prompt_tokens += (int64_t)task->ids[i].n;
        if (fit_prompt(task, i, max_len) != 0)
            return -1;
    }
    if (bound_reply(task, max_reply) != 0 || open_readers(task) != 0)
        return -1;
    for (int i = 0; i < task->n_ids; i++)
        if (open_choices(task, i) != 0)
            return -1;
    return 0;
}

size_t task_reply_bytes(const struct task *task)
{
    const struct protocol_generate *g = &task->message.generate;
    size_t bytes = 0, each = TOKEN_BYTES;
    if (g->rules.want_logprobs)
        each += (size_t)(1 + g->rules.sampling.n_top) * LOGPROB_BYTES;
    for (int i = 0; i < task->n_prompts; i++) {
        const struct choices *choices = &task->choices[i];
        if (choices->prompt_logprobs != NULL)
            bytes += (size_t)task->n_choices * choices->prompt.n * (size_t)(1 + g->rules.sampling.n_prompt_top) *
                     LOGPROB_BYTES;
        for (int c = 0; c < task->n_choices && !g->stream && choices->choice != NULL && choices->choice[c] != NULL; c++)
            bytes += choices->choice[c]->output.n * each;
        if (g->echo && !g->stream && g->prompt != NULL)
            bytes += (size_t)task->n_choices * (g->prompt[i].bytes + choices->prompt.n);
        if (g->return_ids)
            bytes += (size_t)task->n_choices * choices->prompt.n * TOKEN_BYTES;
    }
    return bytes;
}

bool task_is_whole(const struct task *task, int32_t last_token)
{
    const struct request_rules *r = &task->message.generate.rules;
    for (int i = 0; i < r->n_stop_ids; i++)
        if (r->stop_id[i] == last_token)
            return false;
    return task->form != NULL;
}

uint64_t task_salt(const struct task *task)
{
    return task->number * 0x9e3779b97f4a7c15u ^ (uint64_t)(task->arrived * 1e9) ^ task->seed;
}

const char *task_stop_text(const struct task *task, int number)
{
    const struct stop_strings *s = task->message.generate.rules.stop;
    return s != NULL && number > 0 && number <= s->n ? s->string[number - 1].text : NULL;
}

void delta_free(struct delta *p)
{
    if (p == NULL)
        return;
    free(p->text);
    free(p->id);
    free(p->logprobs);
    free(p->error);
    free(p);
}
