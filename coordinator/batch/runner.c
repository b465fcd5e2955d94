/* coordinator/batch/runner.c - the thread and its window of lines. See runner.h. */
#include "coordinator/batch/runner.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "coordinator/batch/result.h"
#include "coordinator/server/mailbox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_PER_SEQUENCE 4
#define MAX_OPEN_BYTES      ((size_t)256 << 20) /* of lines under way; one line may be larger alone */
#define TURN_LINES          64                  /* read before results have a turn again */

enum poll_item { POLL_SIGNAL, POLL_ENGINE, POLL_WORKER, POLL_INPUT, N_POLL };

static void give_order(struct runner *r, struct order what)
{
    struct order *c = malloc(sizeof *c);
    if (c == NULL || (*c = what, !mailbox_post(r->engine[0], c))) {
        log_warn("out of host memory: an order to the engine is lost");
        free(c);
    }
}

void runner_order_withdraw(struct runner *r, uint64_t number)
{
    give_order(r, (struct order){.kind = ORDER_WITHDRAW, .number = number});
}

void runner_order_stop(struct runner *r)
{
    give_order(r, (struct order){.kind = ORDER_STOP});
}

/* The line's life is over. */
static void finish(struct runner *r, struct line *l)
{
    r->progress.n_open--;
    r->open_bytes -= l->bytes;
    line_close(l);
}

/* Its result, an error perhaps, is appended. */
static void append(struct runner *r, struct line *l)
{
    struct err e = {0};
    const struct job *j = l->job;
    size_t bytes = 0;
    char *text = result_line(l, r->setup.o->plain, &bytes);
    if (text == NULL)
        ERR(&e, ERR_MEMORY, "out of host memory: the result of %.200s", l->id);
    if (e.code == ERR_NONE && journal_append(&r->journal, text, bytes, seconds_now(), &e) == 0) {
        r->progress.n_done++;
        r->progress.n_failed += j->error.code != 0;
        for (int i = 0; i < j->n_groups; i++) {
            const struct group *g = &j->group[i];
            r->progress.prompt_tokens += (int64_t)g->prompt.n;
            r->progress.cached_tokens += g->n_cached;
            for (int c = 0; c < j->n_choices && g->choice != NULL && g->choice[c] != NULL; c++)
                r->progress.output_tokens += (int64_t)g->choice[c]->output.n;
        }
    }
    free(text);
    if (e.code != ERR_NONE)
        runner_fail(r, &e);
    finish(r, l);
}

/* Left to the next run: nothing is written. */
static void leave(struct runner *r, struct line *l)
{
    r->left_over = true;
    r->n_left++;
    finish(r, l);
}

static void engage(struct runner *r, struct line *l)
{
    l->next = r->engaged;
    if (l->next != NULL)
        l->next->previous = l;
    r->engaged = l;
    l->job->in_engine = true;
    give_order(r, (struct order){.kind = ORDER_SUBMIT, .job = l->job});
}

static void disengage(struct runner *r, struct line *l)
{
    if (l->previous != NULL)
        l->previous->next = l->next;
    else
        r->engaged = l->next;
    if (l->next != NULL)
        l->next->previous = l->previous;
    l->job->in_engine = false;
}

static void submit(struct runner *r, struct line *l)
{
    struct job *j = l->job;
    if (j->error.code != 0 || job_prepare(j, r->metrics.max_len, line_seed((uint64_t)r->setup.o->seed, l->id)) != 0) {
        append(r, l);
        return;
    }
    if (runner_fits(r, l))
        engage(r, l);
    else
        leave(r, l);
}

/* A line that is tokenized, or was refused before. */
static void prepared(struct runner *r, struct line *l)
{
    if (r->state >= RUNNER_DRAINING) {
        leave(r, l);
    } else if (r->state == RUNNER_LOADING) {
        l->job->next = r->ready != NULL ? r->ready->job : NULL;
        r->ready = l;
    } else {
        submit(r, l);
    }
}

static void submit_ready(struct runner *r)
{
    struct line *first = NULL;
    while (r->ready != NULL) { /* the last one is at the head */
        struct line *l = r->ready;
        r->ready = l->job->next != NULL ? l->job->next->owner : NULL;
        l->job->next = first != NULL ? first->job : NULL;
        first = l;
    }
    while (first != NULL) {
        struct line *l = first;
        first = l->job->next != NULL ? l->job->next->owner : NULL;
        l->job->next = NULL;
        prepared(r, l);
    }
}

/* A job that the engine has given back. */
static void returned(struct runner *r, struct line *l)
{
    struct job *j = l->job;
    disengage(r, l);
    for (int i = 0; i < j->n_groups && j->error.code == 0; i++)
        if (j->group[i].finish == FINISH_CANCELLED) { /* nobody but us cancels */
            leave(r, l);
            return;
        }
    runner_learn(r, l);
    append(r, l);
}

static void take_report(struct runner *r, struct report *report)
{
    metrics_take(&r->metrics, report);
    pace_steps(&r->pace, report->n_steps, report->step_seconds);
    for (struct job *j = report->done, *next; j != NULL; j = next) {
        next = j->engine_next;
        returned(r, j->owner);
    }
    if (report->loaded && r->state == RUNNER_LOADING) {
        r->state = RUNNER_RUNNING;
        r->progress.loaded = seconds_now();
        submit_ready(r);
    }
    if (report->wish != WISH_NONE)
        runner_signal(r, report->wish, false);
    if (report->ended)
        r->state = RUNNER_ENDED;
    steps_report_free(report);
}

static void take_mail(struct runner *r)
{
    struct report *report;
    struct job *j;
    while ((j = mailbox_take(r->worker.end[0])) != NULL)
        prepared(r, j->owner);
    while ((report = mailbox_take(r->engine[0])) != NULL)
        take_report(r, report);
}

static bool has_room(const struct runner *r)
{
    return r->state <= RUNNER_RUNNING && !r->progress.at_end && r->progress.n_open < r->window &&
           (r->progress.n_open == 0 || r->open_bytes < MAX_OPEN_BYTES);
}

static void admit(struct runner *r, const struct input_line *from)
{
    struct line *l = line_open(from, inputs_name(&r->inputs, from->file), &r->rules, ++r->last_number, seconds_now());
    r->progress.n_read++;
    if (l == NULL) {
        struct err e = {0};
        ERR(&e, ERR_MEMORY, "out of host memory: line %lld of %.200s", (long long)from->number,
            inputs_name(&r->inputs, from->file));
        runner_fail(r, &e);
        return;
    }
    r->progress.n_open++;
    r->open_bytes += l->bytes;
    if (l->job->error.code != 0)
        prepared(r, l);
    else
        (void)mailbox_post(r->worker.end[0], l->job);
}

/* Returns whether the input has to be waited for. */
static bool read_lines(struct runner *r)
{
    struct input_line line;
    struct err e = {0};
    for (int i = 0; i < TURN_LINES && has_room(r); i++) {
        enum input_got got = inputs_next(&r->inputs, &line, &e);
        r->progress.input_bytes_read = r->inputs.bytes_read;
        if (got == INPUT_WAIT)
            return true;
        if (got == INPUT_FAILED)
            runner_fail(r, &e);
        else if (got == INPUT_END)
            r->progress.at_end = true;
        else if (share_takes(&r->setup.share, r->n_seen++))
            admit(r, &line);
    }
    return false;
}

static void *run(void *context)
{
    struct runner *r = context;
    zmq_pollitem_t item[N_POLL] = {[POLL_SIGNAL] = {.fd = signals_fd(), .events = ZMQ_POLLIN},
                                   [POLL_ENGINE] = {.socket = r->engine[0], .events = ZMQ_POLLIN},
                                   [POLL_WORKER] = {.socket = r->worker.end[0], .events = ZMQ_POLLIN},
                                   [POLL_INPUT] = {.events = ZMQ_POLLIN}};
    while (r->state != RUNNER_ENDED) {
        bool waiting = read_lines(r);
        long wait = runner_keep_time(r);
        item[POLL_INPUT].fd = r->inputs.fd;
        (void)zmq_poll(item, waiting ? N_POLL : POLL_INPUT, has_room(r) && !waiting ? 0 : wait);
        if ((item[POLL_SIGNAL].revents & ZMQ_POLLIN) != 0)
            runner_signal(r, signals_take(), true);
        take_mail(r);
        runner_show(r, seconds_now());
    }
    return NULL;
}

int runner_open(struct runner *r, const struct runner_setup *setup, struct err *e)
{
    const struct options *o = setup->o;
    const struct worker_setup work = {&r->setup.model, setup->tokenizer, setup->chat, setup->bos};
    memset(r, 0, sizeof *r);
    r->setup = *setup;
    r->journal.fd = -1;
    r->defaults = json_object();
    r->rules = (struct line_rules){&r->setup.model, r->defaults};
    if (inputs_open(&r->inputs, o->input, (int)o->n_input, e) != 0 || journal_open(&r->journal, o->output, e) != 0)
        return -1;
    r->context = zmq_ctx_new();
    if (r->context == NULL)
        return ERR(e, ERR_MEMORY, "no ZeroMQ context for the batch's mailboxes");
    if (mailbox_open(r->context, "engine", r->engine, e) != 0 ||
        worker_open(&r->worker, r->context, "texts", &work, e) != 0)
        return -1;
    r->progress.input_bytes = r->inputs.bytes;
    r->window = (int)o->max_inflight;
    metrics_open(&r->metrics, METRICS_LOCKSTEP, setup->model.name, setup->n_ranks, !o->no_prefix_caching);
    ending_open(&r->ending, &setup->ending);
    pace_open(&r->pace);
    runner_show_start(r);
    return 0;
}

int runner_start(struct runner *r, struct err *e)
{
    int max_seqs = (int)r->setup.o->serve_max_batch;
    r->progress.started = seconds_now();
    if (r->window < 0)
        r->window = WINDOW_PER_SEQUENCE * (max_seqs > 0 ? max_seqs : 256);
    if (pthread_create(&r->thread, NULL, run, r) != 0)
        return ERR(e, ERR_MEMORY, "cannot start the batch thread");
    r->running = true;
    return 0;
}

int runner_close(struct runner *r, struct err *e)
{
    if (r->running)
        (void)pthread_join(r->thread, NULL);
    if (r->context == NULL)
        return 0;
    worker_close(&r->worker);
    for (int i = 0; i < 2; i++)
        mailbox_close(&r->engine[i]);
    (void)zmq_ctx_term(r->context);
    if (r->failure.code == ERR_NONE)
        (void)journal_sync(&r->journal, &r->failure);
    journal_close(&r->journal);
    inputs_close(&r->inputs);
    json_decref(r->defaults);
    metrics_close(&r->metrics);
    if (r->failure.code != ERR_NONE)
        *e = r->failure;
    int status = ending_status(r->left_over, (uint64_t)r->progress.n_failed);
    runner_show_end(r, r->failure.code != ERR_NONE ? (int)r->failure.code : status);
    memset(r, 0, sizeof *r);
    r->journal.fd = -1;
    return status;
}
