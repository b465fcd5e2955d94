/* coordinator/tasks/steps.c - see steps.h. */
#include "coordinator/tasks/steps.h"
#include "base/clock.h"
#include "coordinator/tasks/mailbox.h"

#include <stdlib.h>
#include <string.h>

#define REPORT_SECONDS 0.1 /* numbers are sent this often if there is nothing else to report */

static int new_report(struct steps *s, struct err *e)
{
    s->report = err_calloc(e, 1, sizeof *s->report, "report");
    return s->report != NULL ? 0 : -1;
}

/* Send a report if there is anything to report; numbers alone only now and then, or with `all`. */
static int post(struct steps *s, bool all, struct err *e)
{
    struct report *r = s->report;
    double now = seconds_now();
    if (r->first == NULL && r->done == NULL && r->wish == WISH_NONE && !r->loaded && !r->ended && !all &&
        now - s->reported < REPORT_SECONDS)
        return 0;
    s->reported = now;
    r->stats = scheduler_stats(&s->scheduler);
    r->between_tokens.buckets = &buckets_token;
    r->iteration.buckets = &buckets_iteration;
    histogram_move(&r->between_tokens, &s->between_tokens);
    histogram_move(&r->iteration, &s->iteration);
    r->n_steps = s->n_steps;
    r->n_units = s->n_units;
    r->step_seconds = s->step_seconds;
    (void)mailbox_post(s->mailbox, r);
    return new_report(s, e);
}

static void *copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes > 0 ? bytes : 1);
    if (to != NULL && bytes > 0)
        memcpy(to, from, bytes);
    return to;
}

/* The new output of choice c of a prompt since the last call. Out of memory: it comes with the next delta. */
static void add_delta(struct steps *s, struct task *task, struct choices *set, int c)
{
    const struct request *r = set->choice[c];
    int prompt = (int)(set - task->choices);
    struct choice_progress *sent = &task->work.progress[prompt * task->n_choices + c];
    size_t bytes = r->released - sent->text_sent, n = r->output.n - sent->tokens_sent;
    struct delta *p = n > 0 || bytes > 0 ? calloc(1, sizeof *p) : NULL;
    if (p == NULL)
        return;
    *p = (struct delta){.task = task,
                        .prompt_index = prompt,
                        .choice = c,
                        .bytes = bytes,
                        .n_ids = n,
                        .finish = r->finish,
                        .stop_text = r->stop.found};
    p->text = copy(r->text.data != NULL ? r->text.data + sent->text_sent : "", bytes);
    p->id = copy(r->output.id + sent->tokens_sent, n * sizeof *p->id);
    if (r->logprobs != NULL)
        p->logprobs = copy(r->logprobs + sent->tokens_sent, n * sizeof *p->logprobs);
    if (r->finish == FINISH_ERROR)
        p->error = copy(&r->error, sizeof r->error);
    if (p->text == NULL || p->id == NULL || (r->logprobs != NULL && p->logprobs == NULL) ||
        (r->finish == FINISH_ERROR && p->error == NULL)) {
        delta_free(p);
        return;
    }
    if (s->report->last != NULL)
        s->report->last->next = p;
    else
        s->report->first = p;
    s->report->last = p;
    sent->text_sent = r->released;
    sent->tokens_sent = r->output.n;
}

static void on_choice(void *context, struct choices *set, int c)
{
    struct steps *s = context;
    struct task *task = set->owner;
    struct choice_progress *progress = &task->work.progress[(set - task->choices) * task->n_choices + c];
    double now = seconds_now();
    if (progress->last_token > 0)
        histogram_add(&s->between_tokens, now - progress->last_token);
    progress->last_token = now;
    if (task->message.generate.stream)
        add_delta(s, task, set, c);
}

static void on_finish(void *context, struct choices *set)
{
    (void)context;
    (void)set;
}

static void unlink_task(struct steps *s, struct task *task)
{
    if (task->work.previous != NULL)
        task->work.previous->work.next = task->work.next;
    else
        s->tasks = task->work.next;
    if (task->work.next != NULL)
        task->work.next->work.previous = task->work.previous;
}

static void give_back(struct steps *s, struct task *task)
{
    unlink_task(s, task);
    task->work.next = s->report->done;
    s->report->done = task;
}

static void on_release(void *context, struct choices *set)
{
    struct task *task = set->owner;
    if (--task->work.n_open == 0)
        give_back(context, task);
}

/* The scheduler releases sequences of a running step when that step is done: the task comes back then. */
static void end_job(struct steps *s, struct task *task, enum finish_reason why, double now)
{
    task->work.n_open++; /* it stays until its last prompt has been released */
    for (int i = 0; i < task->n_prompts; i++)
        choices_cancel(&task->choices[i], why, now);
    if (--task->work.n_open == 0)
        give_back(s, task);
}

int steps_open(struct steps *s, void *mailbox, const struct scheduler_setup *setup, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->events = (struct choices_events){on_choice, on_finish, on_release, s};
    s->between_tokens.buckets = &buckets_token;
    s->iteration.buckets = &buckets_iteration;
    struct scheduler_setup mine = *setup;
    mine.on_progress = choices_on_progress;
    mine.on_release = choices_on_release;
    mine.context = &s->events;
    mine.foresees = true;
    if (new_report(s, e) != 0 || scheduler_open(&s->scheduler, &mine, e) != 0)
        return -1;
    s->mailbox = mailbox;
    s->report->loaded = true;
    s->report->max_len = scheduler_max_len(&s->scheduler);
    s->report->n_blocks = setup->limits.n_blocks;
    s->report->max_seqs = setup->limits.max_seqs;
    return post(s, true, e);
}

void steps_close(struct steps *s)
{
    struct err e = {0};
    if (s->mailbox != NULL && s->report != NULL) {
        for (struct task *task; (task = s->tasks) != NULL;) {
            end_job(s, task, FINISH_CANCELLED, seconds_now());
            if (s->tasks == task) /* cannot happen without a step under way, but the loop must end */
                give_back(s, task);
        }
        s->report->ended = true;
        (void)post(s, true, &e);
    }
    steps_report_free(s->report);
    scheduler_close(&s->scheduler);
    memset(s, 0, sizeof *s);
}

static void submit_task(struct steps *s, struct task *task, double now)
{
    struct err e = {0};
    task->work.previous = NULL;
    task->work.next = s->tasks;
    if (s->tasks != NULL)
        s->tasks->work.previous = task;
    s->tasks = task;
    task->work.n_open = 1; /* ours, so that it stays while its prompts are queued */
    for (int i = 0; i < task->n_prompts && e.code == ERR_NONE; i++)
        if (choices_submit(&task->choices[i], &s->scheduler, now, &e) == 0)
            task->work.n_open++;
    if (e.code != ERR_NONE) {
        (void)protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "%s", e.text);
        for (int i = 0; i < task->n_prompts; i++)
            choices_cancel(&task->choices[i], FINISH_ERROR, now);
    }
    if (--task->work.n_open == 0)
        give_back(s, task);
}

static void cancel_task(struct steps *s, uint64_t number, enum finish_reason why, double now)
{
    struct task *task = s->tasks;
    while (task != NULL && task->number != number)
        task = task->work.next;
    if (task != NULL) /* otherwise it has ended meanwhile */
        end_job(s, task, why, now);
}

static bool has_begun(const struct task *task)
{
    for (int i = 0; i < task->n_prompts; i++)
        if (choices_begun(&task->choices[i]))
            return true;
    return false;
}

static void withdraw(struct steps *s, uint64_t number, double now)
{
    for (struct task *task = s->tasks, *next; task != NULL; task = next) {
        next = task->work.next;
        if ((number == 0 || task->number == number) && !has_begun(task))
            end_job(s, task, FINISH_CANCELLED, now);
    }
}

bool steps_hear(struct steps *s)
{
    struct order *c;
    while ((c = mailbox_take(s->mailbox)) != NULL) {
        if (c->kind == ORDER_SUBMIT)
            submit_task(s, c->task, c->task->ticket.queued > 0 ? c->task->ticket.queued : seconds_now());
        else if (c->kind == ORDER_CANCEL)
            cancel_task(s, c->number, c->why, seconds_now());
        else if (c->kind == ORDER_WITHDRAW)
            withdraw(s, c->number, seconds_now());
        else
            s->stopping = true;
        free(c);
    }
    return s->stopping;
}

static void note_plan(struct steps *s, const struct plan *plan)
{
    double *submitted = &s->submitted[plan->step % SCHEDULER_FLIGHTS];
    *submitted = 0;
    if (plan->n_seqs == 0)
        return;
    s->n_outstanding++;
    *submitted = seconds_now();
    histogram_add(&s->iteration, plan->n_tokens);
}

static void free_ranks(struct report *r)
{
    free(r->ranks);
    free(r->recent);
    r->ranks = r->recent = NULL;
}

void steps_ranks(struct steps *s, const struct rank_report *report)
{
    struct report *r = s->report;
    if (r == NULL)
        return;
    size_t bytes = (size_t)report->n_ranks * sizeof *r->ranks;
    free_ranks(r);
    r->ranks = copy(report->total, bytes);
    r->recent = copy(report->recent, bytes);
    r->n_ranks = report->n_ranks;
    if (r->ranks == NULL || r->recent == NULL)
        free_ranks(r);
}

void steps_signal(struct steps *s, enum signal_wish wish)
{
    if (s->report != NULL && wish > s->report->wish)
        s->report->wish = wish;
}

int steps_stop(struct steps *s, struct plan *plan, struct err *e)
{
    plan->kind = PLAN_STOP;
    return post(s, true, e);
}

int steps_plan(struct steps *s, struct plan *plan, struct err *e)
{
    scheduler_plan(&s->scheduler, plan, seconds_now()); /* also an empty one: its results come back to the scheduler */
    note_plan(s, plan);
    bool idle = plan->n_seqs == 0 && s->n_outstanding == 0;
    if (post(s, idle && !s->idle, e) != 0)
        return -1;
    s->idle = idle;
    return 0;
}

int steps_next(struct steps *s, struct plan *plan, struct err *e)
{
    if (steps_hear(s))
        return steps_stop(s, plan, e);
    if (steps_plan(s, plan, e) != 0)
        return -1;
    if (!s->idle) /* an empty plan has the results of the one before it taken */
        return 0;
    (void)mailbox_wait(s->mailbox, scheduler_busy(&s->scheduler) ? 1 : STEPS_IDLE_MS);
    return PLAN_IDLE;
}

int steps_accept(struct steps *s, const struct step_result *result, struct err *e)
{
    double now = seconds_now(), submitted = s->submitted[result->step % SCHEDULER_FLIGHTS];
    if (submitted > 0) {
        s->n_outstanding--;
        s->n_steps++;
        s->step_seconds += now - submitted;
    }
    if (scheduler_accept(&s->scheduler, result, now, e) != 0)
        return -1;
    return post(s, false, e);
}

void steps_report_free(struct report *r)
{
    for (struct delta *p = r != NULL ? r->first : NULL, *next; p != NULL; p = next) {
        next = p->next;
        delta_free(p);
    }
    if (r != NULL)
        free_ranks(r);
    free(r);
}
