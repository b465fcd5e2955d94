/* coordinator/tasks/task.c - see task.h. */
#include "coordinator/tasks/task.h"
#include "text/calls/calls.h"
#include "text/grammar/form.h"

#include <stdlib.h>
#include <string.h>

struct task *task_open(uint64_t number, zmq_msg_t *body, bool delimiter, double now)
{
    struct task *j = calloc(1, sizeof *j);
    if (j == NULL) {
        if (body != NULL)
            (void)zmq_msg_close(body);
        return NULL;
    }
    j->number = number;
    j->arrived = now;
    j->delimiter = delimiter;
    j->ticket.model = -1;
    (void)zmq_msg_init(&j->body);
    if (body != NULL) {
        j->message_bytes = zmq_msg_size(body);
        (void)zmq_msg_move(&j->body, body);
    }
    return j;
}

void task_close(struct task *j)
{
    if (j == NULL)
        return;
    for (int i = 0; i < j->n_prompts; i++)
        choices_close(&j->choices[i]);
    for (int i = 0; i < j->n_ids; i++) {
        token_list_free(&j->ids[i]);
        if (j->echo != NULL)
            free(j->echo[i].text);
    }
    for (int i = 0; j->reader != NULL && i < j->n_ids * j->n_choices; i++)
        calls_close(j->reader[i]);
    free(j->reader);
    free(j->echo);
    free(j->ids);
    token_list_free(&j->prediction);
    free(j->choices);
    form_close(j->form);
    free(j->rules);
    free(j->work.progress);
    free(j->ticket.echoed);
    free(j->reply);
    if (j->parsed)
        protocol_message_close(&j->message);
    (void)zmq_msg_close(&j->body);
    free(j);
}

void task_read(struct task *j)
{
    (void)protocol_read(&j->message, zmq_msg_data(&j->body), zmq_msg_size(&j->body), &j->error);
    j->parsed = true;
    (void)zmq_msg_close(&j->body);
    (void)zmq_msg_init(&j->body);
    if (j->message.request_id != NULL)
        (void)snprintf(j->request_id, sizeof j->request_id, "%s", j->message.request_id);
}

void task_check(struct task *j)
{
    static const struct protocol_model none = {0};
    (void)protocol_check(&j->message, j->served != NULL ? &j->served->model : &none, !j->delimiter, &j->error);
    j->checked = true;
}

/* Checks one prompt: all of max_tokens must fit beside it. */
static int fit_prompt(struct task *j, int i, int max_len)
{
    int64_t n = (int64_t)j->ids[i].n;
    struct request_rules *rules = &j->rules[i];
    char field[64] = "prompt";
    if (j->message.generate.n_turns > 0)
        (void)snprintf(field, sizeof field, "messages");
    else if (j->n_ids > 1)
        (void)snprintf(field, sizeof field, "prompt[%d]", i);
    if (n < 1)
        return protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, field, "no tokens, expected at least one");
    if (n >= max_len)
        return protocol_fail(&j->error, PROTOCOL_TOO_LARGE, field,
                             "%lld tokens, expected fewer than %d, which prompt and output have together", (long long)n,
                             max_len);
    if (rules->max_tokens == PROTOCOL_FILL)
        rules->max_tokens = (int)(max_len - n);
    if (n + rules->max_tokens > max_len)
        return protocol_fail(&j->error, PROTOCOL_TOO_LARGE, "max_tokens",
                             "%lld prompt tokens + %d = %lld, expected at most %d together", (long long)n,
                             rules->max_tokens, (long long)n + rules->max_tokens, max_len);
    return 0;
}

/* Makes the incremental parsers for a stream's answers. */
static int open_readers(struct task *j)
{
    int n = j->n_ids * j->n_choices;
    bool good = true;
    if (!calls_any(j->calls) || !j->message.generate.stream)
        return 0;
    j->reader = calloc((size_t)n, sizeof *j->reader);
    for (int i = 0; j->reader != NULL && i < n; i++)
        good = (j->reader[i] = calls_open(j->calls)) != NULL && good;
    return j->reader != NULL && good ? 0 : protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "out of host memory");
}

static int open_choices(struct task *j, int i)
{
    const struct protocol_generate *g = &j->message.generate;
    struct choices *choices = &j->choices[i];
    struct err e = {0};
    const char *field = "";
    if (search_check(&g->search, &j->rules[i], &field, &e) != 0)
        return protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, field, "%s", e.text);
    if (choices_open(choices, &g->search, &j->rules[i], &j->ids[i], &e) != 0)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "%s", e.text);
    j->n_prompts++;
    choices->owner = j;
    choices->prediction = &j->prediction;
    choices->client = j->asker;
    choices->priority = g->priority;
    choices->deadline = g->timeout_ms > 0 ? j->arrived + 1e-3 * (double)g->timeout_ms : 0;
    return 0;
}

/* Bytes of JSON per token: its id and some text, and an id and a number per log-probability. */
#define TOKEN_BYTES   16
#define LOGPROB_BYTES 64

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

int64_t task_echo_bytes(const struct task *j, int i)
{
    const struct protocol_generate *g = &j->message.generate;
    if (g->prompt != NULL && g->prompt[i].text != NULL)
        return task_text_bytes(g->prompt[i].text, g->prompt[i].bytes);
    return (int64_t)j->ids[i].n * TOKEN_BYTES;
}

/* Every choice repeats the prompt, and its scores. */
static void add_prompt(struct reply_demand *d, const struct task *j, int i)
{
    const struct protocol_generate *g = &j->message.generate;
    int64_t n = g->search.n, n_prompt = (int64_t)j->ids[i].n;
    if (g->rules.want_prompt_logprobs)
        d->scores += n * n_prompt;
    if (!g->stream)
        d->tokens += n * j->rules[i].max_tokens;
    if (g->echo)
        d->of_echo += n * task_echo_bytes(j, i);
}

/* A stream's tokens are in small events, but the scores of its prompts are in the last one. */
static struct reply_demand demand_of(const struct task *j)
{
    const struct request_rules *rules = &j->message.generate.rules;
    struct reply_demand d = {0};
    for (int i = 0; i < j->n_ids; i++)
        add_prompt(&d, j, i);
    d.of_scores = d.scores * (1 + rules->sampling.n_prompt_top) * LOGPROB_BYTES;
    d.of_tokens = d.tokens * (TOKEN_BYTES + (rules->want_logprobs ? (1 + rules->sampling.n_top) * LOGPROB_BYTES : 0));
    return d;
}

/* The memory held for it until it is written: includes candidates that are not among the best, and a prompt's scores
 * once. */
static size_t result_bytes(const struct task *j)
{
    const struct protocol_generate *g = &j->message.generate;
    int64_t sequences = g->search.num_beams > g->search.n ? g->search.num_beams : g->search.n, bytes = 0;
    sequences = g->search.best_of > sequences ? g->search.best_of : sequences;
    for (int i = 0; i < j->n_ids; i++) {
        bytes += sequences * j->rules[i].max_tokens *
                 (TOKEN_BYTES + (g->rules.want_logprobs ? (int64_t)sizeof(struct sampled) : 0));
        if (g->rules.want_prompt_logprobs)
            bytes += (int64_t)(j->ids[i].n * sizeof(struct sampled));
        if (j->echo != NULL)
            bytes += (int64_t)j->echo[i].bytes;
    }
    return (size_t)bytes;
}

static int bound_reply(struct task *j, int64_t max_reply)
{
    const struct request_rules *rules = &j->message.generate.rules;
    const struct reply_demand d = demand_of(j);
    int64_t bytes = d.of_scores + d.of_tokens + d.of_echo;
    j->result_bytes = result_bytes(j);
    if (bytes <= max_reply)
        return 0;
    const char *field = d.of_scores >= d.of_tokens && d.of_scores >= d.of_echo ? "prompt_logprobs"
                        : d.of_echo >= d.of_tokens                             ? "echo"
                        : rules->want_logprobs                                 ? "logprobs"
                                                                               : "max_tokens";
    return protocol_fail(&j->error, PROTOCOL_TOO_LARGE, field,
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

int task_prepare(struct task *j, int max_len, int64_t max_reply, uint64_t seed)
{
    const struct protocol_generate *g = &j->message.generate;
    size_t n = (size_t)j->n_ids, choices = n * (size_t)g->search.n;
    j->seed = g->has_seed ? g->rules.sampling.seed : seed;
    j->n_choices = g->search.n;
    j->rules = calloc(n, sizeof *j->rules);
    j->choices = calloc(n, sizeof *j->choices);
    j->work.progress = calloc(choices, sizeof *j->work.progress);
    j->ticket.echoed = calloc(choices, sizeof *j->ticket.echoed);
    if (j->rules == NULL || j->choices == NULL || j->work.progress == NULL || j->ticket.echoed == NULL)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "out of host memory");
    shorten(&j->prediction, (size_t)max_len); /* no answer can be longer */
    for (int i = 0; i < j->n_ids; i++) {
        j->rules[i] = g->rules;
        j->rules[i].form = j->form;
        j->rules[i].sampling.seed = j->seed;
        if (fit_prompt(j, i, max_len) != 0)
            return -1;
    }
    if (bound_reply(j, max_reply) != 0 || open_readers(j) != 0)
        return -1;
    for (int i = 0; i < j->n_ids; i++)
        if (open_choices(j, i) != 0)
            return -1;
    return 0;
}

size_t task_reply_bytes(const struct task *j)
{
    const struct protocol_generate *g = &j->message.generate;
    size_t bytes = 0, each = TOKEN_BYTES;
    if (g->rules.want_logprobs)
        each += (size_t)(1 + g->rules.sampling.n_top) * LOGPROB_BYTES;
    for (int i = 0; i < j->n_prompts; i++) {
        const struct choices *choices = &j->choices[i];
        if (choices->prompt_logprobs != NULL)
            bytes +=
                (size_t)j->n_choices * choices->prompt.n * (size_t)(1 + g->rules.sampling.n_prompt_top) * LOGPROB_BYTES;
        for (int c = 0; c < j->n_choices && !g->stream && choices->choice != NULL && choices->choice[c] != NULL; c++)
            bytes += choices->choice[c]->output.n * each;
        if (g->echo && !g->stream && g->prompt != NULL)
            bytes += (size_t)j->n_choices * (g->prompt[i].bytes + choices->prompt.n);
    }
    return bytes;
}

bool task_is_whole(const struct task *j, int32_t last_token)
{
    const struct request_rules *r = &j->message.generate.rules;
    for (int i = 0; i < r->n_stop_ids; i++)
        if (r->stop_id[i] == last_token)
            return false;
    return j->form != NULL;
}

uint64_t task_salt(const struct task *j)
{
    return j->number * 0x9e3779b97f4a7c15u ^ (uint64_t)(j->arrived * 1e9) ^ j->seed;
}

const char *task_stop_text(const struct task *j, int number)
{
    const struct stop_strings *s = j->message.generate.rules.stop;
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
