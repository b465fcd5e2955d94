/* coordinator/tasks/finished.c - see finished.h. */
#include "coordinator/tasks/finished.h"
#include "protocol/reply_said.h"

#include <stdlib.h>
#include <string.h>

/* The text of prompt i, for echo; malloc'ed. */
static char *prompt_text(const struct task *task, const struct tokenizer *t, int i, size_t *bytes)
{
    const struct protocol_generate *g = &task->message.generate;
    struct err e = {0};
    char *text = NULL;
    if (g->prompt != NULL && g->prompt[i].text != NULL) {
        *bytes = g->prompt[i].bytes;
        text = malloc(*bytes + 1);
        if (text != NULL)
            memcpy(text, g->prompt[i].text, *bytes + 1);
        return text;
    }
    const struct token_list *ids = &task->choices[i].prompt;
    if (tokenizer_decode(t, ids->id, ids->n, g->rules.skip_special, &text, bytes, &e) != 0)
        return NULL;
    return text;
}

/* The text of prompt i before an output of *bytes bytes; malloc'ed, *bytes then covers both. NULL: out of memory. */
static char *with_prompt(const struct task *task, const struct tokenizer *t, int i, const char *output, size_t *bytes)
{
    size_t before = 0;
    char *text = prompt_text(task, t, i, &before), *both = text != NULL ? realloc(text, before + *bytes + 1) : NULL;
    if (both == NULL) {
        free(text);
        return NULL;
    }
    memcpy(both + before, output, *bytes);
    *bytes += before;
    both[*bytes] = '\0';
    return both;
}

/* over all prompts: the first of each. 0: never. */
static struct request_times times_of(const struct task *task)
{
    struct request_times t = {0};
    for (int i = 0; i < task->n_prompts; i++) {
        const struct request_times *one = &task->choices[i].times;
        const double at[3] = {one->arrived, one->scheduled, one->first_token};
        double *const to[3] = {&t.arrived, &t.scheduled, &t.first_token};
        for (int k = 0; k < 3; k++)
            if (at[k] > 0 && (*to[k] == 0 || at[k] < *to[k]))
                *to[k] = at[k];
        t.finished = one->finished > t.finished ? one->finished : t.finished;
    }
    return t;
}

static struct time_split split_time(const struct task *task, const struct request_times *t, double now)
{
    struct time_split split = {.total = now - task->arrived};
    double end = t->finished > 0 ? t->finished : now;
    double queued_to = t->scheduled > 0 ? t->scheduled : end;
    if (t->arrived > 0)
        split.queue = queued_to - t->arrived;
    if (t->scheduled > 0)
        split.prefill = (t->first_token > 0 ? t->first_token : end) - t->scheduled;
    if (t->first_token > 0)
        split.decode = end - t->first_token;
    split.overhead = split.total - split.queue - split.prefill - split.decode;
    return split;
}

/* The reason if every choice has failed; NULL: some choice has not. */
static const struct err *common_error(const struct task *task)
{
    const struct err *e = NULL;
    for (int i = 0; i < task->n_prompts; i++)
        for (int c = 0; c < task->n_choices; c++) {
            const struct err *own = choices_error(&task->choices[i], c);
            if (own == NULL)
                return NULL;
            e = e != NULL ? e : own;
        }
    return e;
}

void finished_judge(struct task *task)
{
    const struct err *e = common_error(task);
    for (int i = 0; i < task->n_prompts && task->error.code == 0; i++) {
        enum finish_reason finish = task->choices[i].finish;
        if (e != NULL)
            (void)protocol_fail(&task->error, protocol_blame(e), "", "%s", e->text);
        else if (finish == FINISH_TIMEOUT)
            (void)protocol_fail(&task->error, PROTOCOL_TIMEOUT, "timeout_ms", "%lld ms have passed",
                                (long long)task->message.generate.timeout_ms);
        else if (finish == FINISH_CANCELLED)
            (void)protocol_fail(&task->error, PROTOCOL_CANCELLED, "", "cancelled");
        else if (finish != FINISH_STOP && finish != FINISH_LENGTH)
            (void)protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "the request failed in the engine");
    }
}

/* The text and the calls of a complete answer; those of a stream have been sent already. */
static void take_apart(const struct task *task, struct reply_choice *choice)
{
    int n = 0;
    if (!calls_any(task->calls))
        return;
    if (task->reader != NULL)
        n = calls_count(task->reader[choice->index]);
    else
        choice->said = reply_said(task->calls, task_salt(task), choice->index, choice->text, choice->bytes, &n);
    choice->calls = n > 0;
}

/* The token that was generated because the prompt alone was wanted is not in the reply. */
static void drop_output(struct reply_choice *choice)
{
    choice->bytes = choice->n_tokens = 0;
    if (choice->finish == FINISH_STOP)
        choice->finish = FINISH_LENGTH;
}

/* Returns the text if it was made for this (echo); it is freed after the reply. */
static char *fill_choice(const struct task *task, const struct tokenizer *t, int i, int c, struct reply_choice *choice)
{
    const struct protocol_generate *g = &task->message.generate;
    const struct request *r = task->choices[i].choice != NULL ? task->choices[i].choice[c] : NULL;
    *choice = (struct reply_choice){.index = i * task->n_choices + c, .text = "", .finish = task->choices[i].finish};
    choice->error = choices_error(&task->choices[i], c);
    if (r == NULL)
        return NULL;
    choice->finish = r->finish;
    choice->stop_text = task_stop_text(task, r->stop.found);
    choice->whole = r->output.n > 0 && task_is_whole(task, r->output.id[r->output.n - 1]);
    choice->text = r->text.data != NULL ? r->text.data : "";
    choice->bytes = r->released;
    choice->token_id = r->output.id;
    choice->n_tokens = r->output.n;
    choice->logprobs = g->rules.want_logprobs ? r->logprobs : NULL;
    choice->n_top = g->rules.sampling.n_top;
    if (g->prompt_alone)
        drop_output(choice);
    const struct choices *choices = &task->choices[i];
    choice->has_score = choices->score != NULL;
    choice->score = choice->has_score ? choices->score[c] : 0;
    choice->prompt_logprobs = choices->prompt_logprobs;
    choice->prompt_id = choices->prompt.id;
    choice->n_prompt = choices->prompt.n;
    choice->n_prompt_top = g->rules.sampling.n_prompt_top;
    take_apart(task, choice);
    char *both = g->echo && !g->stream ? with_prompt(task, t, i, choice->text, &choice->bytes) : NULL;
    if (both != NULL)
        choice->text = both;
    return both;
}

static struct reply_usage usage_of(const struct task *task)
{
    struct reply_usage u = {0, 0, 0};
    for (int i = 0; i < task->n_prompts; i++) {
        const struct choices *set = &task->choices[i];
        u.prompt_tokens += (int64_t)set->prompt.n;
        u.cached_tokens += set->n_cached;
        for (int c = 0; c < task->n_choices && set->choice != NULL && set->choice[c] != NULL; c++)
            u.completion_tokens += (int64_t)set->choice[c]->output.n;
    }
    if (task->message.generate.prompt_alone)
        u.completion_tokens = 0;
    return u;
}

static struct draft_counts drafts_of(const struct task *task)
{
    struct draft_counts sum = {0};
    for (int i = 0; i < task->n_prompts; i++)
        draft_counts_add(&sum, &task->choices[i].drafts);
    return sum;
}

void finished_measure(struct finished *f, const struct task *task, double now)
{
    *f = (struct finished){.times = times_of(task)};
    f->split = split_time(task, &f->times, now);
    f->usage = usage_of(task);
    f->counts = drafts_of(task);
    f->drafts = (struct reply_drafts){f->counts.n_places, f->counts.n_steps, f->counts.n_tokens, f->counts.n_accepted};
    f->timing = (struct reply_timing){1e3 * f->split.queue, 1e3 * f->split.prefill, 1e3 * f->split.decode,
                                      1e3 * f->split.total};
}

int finished_choices(struct finished *f, const struct task *task, const struct tokenizer *t)
{
    size_t n = (size_t)task->n_prompts * (size_t)task->n_choices;
    f->choice = calloc(n + 1, sizeof *f->choice);
    f->made = calloc(n + 1, sizeof *f->made);
    if (f->choice == NULL || f->made == NULL)
        return -1;
    f->n_choices = (int)n;
    for (int i = 0; i < f->n_choices; i++)
        f->made[i] = fill_choice(task, t, i / task->n_choices, i % task->n_choices, &f->choice[i]);
    return 0;
}

char *finished_reply(struct finished *f, struct task *task, const struct tokenizer *t, const char *model, size_t *bytes)
{
    if (finished_choices(f, task, t) != 0)
        return NULL;
    const struct reply reply = {.request_id = task->request_id[0] != '\0' ? task->request_id : NULL,
                                .model = model,
                                .tokenizer = t,
                                .n_choices = f->n_choices,
                                .choice = f->choice,
                                .usage = &f->usage,
                                .timing = &f->timing,
                                .drafts = &f->drafts,
                                .error = &task->error,
                                .seed = task->seed,
                                .predicted = task->message.generate.prediction != NULL,
                                .ids = task->message.generate.return_ids};
    return task->message.generate.stream ? reply_final(&reply, task->ticket.n_events++, bytes)
                                         : reply_generate(&reply, bytes);
}

void finished_close(struct finished *f)
{
    for (int i = 0; i < f->n_choices; i++) {
        free(f->made[i]);
        json_decref(f->choice[i].said);
    }
    free(f->made);
    free(f->choice);
    *f = (struct finished){0};
}
