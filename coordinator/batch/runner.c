/* coordinator/batch/runner.c - the thread and its window of lines. See runner.h. */
#include "coordinator/batch/runner.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/tasks/finished.h"
#include "coordinator/tasks/mailbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_PER_SEQUENCE 4
#define MAX_OPEN_BYTES      ((size_t)256 << 20) /* bytes of lines under way; a single line may be larger */
#define SPARE_PART          4                   /* a replica may have this part of its sequences in addition, but */
#define LEAST_SPARE         8                   /* at least this many */
#define TURN_LINES          64                  /* lines read before results are processed again */
#define MAX_TOLD            5                   /* malformed lines that are shown individually */

enum poll_item { POLL_SIGNAL, POLL_WORKER, POLL_REPLICAS /* then input and output, if the thread waits for them */ };
#define POLL_MODELS 1 /* with several models: their opener, and one per set of ranks */

void runner_order_withdraw(struct runner *r, const struct task *task)
{
    replicas_withdraw(&r->replicas, task);
}

void runner_order_stop(struct runner *r)
{
    if (runner_has_many(r))
        models_stop(&r->models);
    else
        replicas_stop(&r->replicas);
}

static const char *file_of(const struct runner *r, const struct line *l)
{
    return inputs_name(&r->files.inputs, l->file);
}

/* Prints messages about the first few lines, then one that there are more. */
static bool may_tell(struct runner *r)
{
    if (r->lines.n_told <= MAX_TOLD)
        outlets_clear(&r->view.outlets);
    if (r->lines.n_told == MAX_TOLD)
        log_warn("more lines have errors: they are in the output, and counted at the end");
    return r->lines.n_told++ < MAX_TOLD;
}

/* Closes a line. */
static void finish_line(struct runner *r, struct line *l)
{
    r->progress.n_open--;
    r->lines.open_bytes -= l->bytes;
    runner_forget(r, l);
    line_close(l);
}

/* Leaves a line to the next run: nothing is written. */
void runner_leave(struct runner *r, struct line *l)
{
    r->progress.n_left++;
    finish_line(r, l);
}

static void note_result(struct runner *r, const struct line *l, const struct result_count *count, int64_t offset,
                        struct err *e)
{
    const struct protocol_error *error = &l->task->error;
    struct id_entry *entry = ids_get(&r->files.ids, l->id, e);
    if (entry != NULL)
        entry->offset = offset;
    r->progress.n_done++;
    r->progress.n_failed += error->code != 0;
    r->progress.prompt_tokens += count->prompt_tokens;
    r->progress.cached_tokens += count->cached_tokens;
    r->progress.output_tokens += count->output_tokens;
    if (error->code != 0 && may_tell(r))
        log_warn("%.200s: line %lld: %s%s%s", file_of(r, l), (long long)l->number, error->field,
                 error->field[0] != '\0' ? ": " : "", error->message);
}

/* Appends its result, which may be an error. */
void runner_append(struct runner *r, struct line *l)
{
    struct err e = {0};
    struct result_count count;
    const struct served *served = l->task->served;
    const struct result_style style = {r->setup.o->plain, served != NULL ? served->model.name : NULL,
                                       served != NULL ? served->tokenizer : NULL};
    size_t bytes = 0;
    int64_t offset = r->files.journal.bytes;
    double now = seconds_now();
    bool appended = false;
    if (r->end.failure.code != ERR_NONE) {
        runner_leave(r, l);
        return;
    }
    if (l->nameless)
        runner_files_place(r, l, &e);
    char *text = e.code == ERR_NONE ? result_line(l, file_of(r, l), &style, now, &bytes, &count) : NULL;
    if (text == NULL)
        ERR(&e, ERR_MEMORY, "out of host memory: the result of %.200s", l->id); /* the first failure wins */
    else
        appended = journal_append(&r->files.journal, text, bytes, now, &e) == 0;
    free(text);
    if (appended)
        note_result(r, l, &count, offset, &e);
    if (e.code != ERR_NONE)
        runner_fail(r, &e);
    if (appended)
        finish_line(r, l);
    else
        runner_leave(r, l);
}

static void engage(struct runner *r, struct line *l, int replica)
{
    l->previous = NULL;
    l->next = r->lines.engaged;
    if (l->next != NULL)
        l->next->previous = l;
    r->lines.engaged = l;
    runner_begin(r, l);
    runner_settle(r, l, replica);
    replicas_submit(&r->replicas, l->task, replica);
}

static void disengage(struct runner *r, struct line *l)
{
    if (l->previous != NULL)
        l->previous->next = l->next;
    else
        r->lines.engaged = l->next;
    if (l->next != NULL)
        l->next->previous = l->previous;
}

/* Lines wait here and not in a replica, since it is not known in advance which one has room first. A replica gets
 * somewhat more lines than it runs, so that it need not wait. */
void runner_hand_out(struct runner *r)
{
    int n = replicas_running(&r->replicas);
    int spare = n > 0 ? replicas_max_seqs(&r->replicas) / n / SPARE_PART : 0;
    spare = spare > LEAST_SPARE ? spare : LEAST_SPARE;
    for (struct line **at = &r->lines.ready, *before = NULL, *l; (l = *at) != NULL;) {
        bool goes_on = r->state < RUNNER_DRAINING;
        int replica = goes_on ? runner_choose(r, l, spare) : 0;
        if (replica < 0 && !runner_has_many(r))
            return;
        if (replica < 0) { /* its model has no room, but another one may */
            before = l;
            at = &l->next;
            continue;
        }
        bool fits = goes_on && runner_fits(r, l);
        if (fits && !runner_allows(r, l))
            return;
        *at = l->next;
        r->lines.last_ready = l->next != NULL ? r->lines.last_ready : before;
        l->next = NULL;
        r->lines.n_ready--;
        if (fits)
            engage(r, l, replica);
        else
            runner_leave(r, l);
    }
}

/* A line that has been tokenized or refused. */
static void prepared(struct runner *r, struct line *l)
{
    struct task *task = l->task;
    struct err e = {0};
    if (r->state < RUNNER_DRAINING && task->error.code == 0 && task->message.generate.rules.max_tokens == PROTOCOL_FILL)
        runner_files_filled(r, l->model, &e);
    if (e.code != ERR_NONE)
        runner_fail(r, &e);
    if (r->state >= RUNNER_DRAINING) {
        runner_leave(r, l);
    } else if (task->error.code != 0 ||
               task_prepare(task, replicas_max_len(&r->replicas, l->model), r->setup.o->service.max_reply_bytes,
                            line_seed((uint64_t)r->setup.o->sampling.seed, l->id)) != 0) {
        line_name_field(l);
        runner_append(r, l);
    } else {
        if (r->lines.last_ready != NULL)
            r->lines.last_ready->next = l;
        else
            r->lines.ready = l;
        r->lines.last_ready = l;
        r->lines.n_ready++;
    }
}

/* A task that the engine has returned. A cancelled task was stopped by this thread, the only one that cancels. */
static void returned(struct runner *r, struct line *l)
{
    struct task *task = l->task;
    bool cancelled = false;
    disengage(r, l);
    for (int i = 0; i < task->n_prompts; i++)
        cancelled = cancelled || task->choices[i].finish == FINISH_CANCELLED;
    finished_judge(task);
    line_name_field(l);
    runner_learn(r, l, !cancelled);
    if (cancelled)
        runner_leave(r, l);
    else
        runner_append(r, l);
}

/* Steps of no more tokens than there are sequences. */
static bool fed_no_prompts(const struct report *report)
{
    return report->iteration.n > 0 &&
           report->iteration.sum <= (double)report->iteration.n * (double)report->stats.n_running;
}

static void take_report(struct runner *r, struct report *report, int replica)
{
    struct err e = {0};
    runner_note_steps(r, fed_no_prompts(report));
    metrics_take(&r->metrics, report, replica);
    for (struct task *task = report->done, *next; task != NULL; task = next) {
        next = task->work.next;
        if (!models_take_back(&r->models, task))
            returned(r, task->owner);
    }
    if (!runner_has_many(r) && r->state == RUNNER_LOADING && replicas_loaded(&r->replicas)) {
        r->state = RUNNER_RUNNING;
        r->progress.loaded = seconds_now();
        if (runner_files_check_len(r, &e) != 0)
            runner_fail(r, &e);
        outlets_soon(&r->view.outlets);
    }
    if (report->wish != WISH_NONE)
        runner_signal(r, report->wish, false);
    if (!runner_has_many(r) && report->ended && replicas_ended(&r->replicas))
        r->state = RUNNER_ENDED;
    steps_report_free(report);
}

void runner_take_reports(struct runner *r)
{
    struct report *report;
    int replica = 0;
    while ((report = replicas_take(&r->replicas, &replica)) != NULL)
        take_report(r, report, replica);
}

static void take_mail(struct runner *r)
{
    struct task *task;
    while ((task = mailbox_take(r->worker.end[0])) != NULL)
        prepared(r, task->owner);
    runner_take_reports(r);
    runner_hand_out(r);
}

int runner_window(const struct runner *r)
{
    int n = WINDOW_PER_SEQUENCE * replicas_max_seqs(&r->replicas);
    return r->lines.window > 0 ? r->lines.window : n > 0 ? n : 1;
}

static bool has_room(const struct runner *r)
{
    if (r->state != RUNNER_RUNNING || r->progress.at_end || r->files.journal.n_pending > 0)
        return false;
    if (runner_has_many(r))
        return runner_reads_ahead(r);
    return r->progress.n_open < runner_window(r) && (r->progress.n_open == 0 || r->lines.open_bytes < MAX_OPEN_BYTES);
}

static void tell_duplicate(struct runner *r, const struct line *l, uint64_t position)
{
    if (may_tell(r))
        log_warn("%.200s: line %lld: id \"%.100s\" is that of %.200s: line %lld; it is not run again", file_of(r, l),
                 (long long)l->number, l->id, inputs_name(&r->files.inputs, ids_file(position)),
                 (long long)ids_line(position));
}

/* Is the line new, so that it has to run? */
static bool is_wanted(struct runner *r, const struct line *l, struct err *e)
{
    struct id_entry *entry = ids_get(&r->files.ids, l->id, e);
    if (entry == NULL)
        return false;
    if (entry->position != 0) {
        r->progress.n_duplicates++;
        tell_duplicate(r, l, entry->position);
        return false;
    }
    entry->position = ids_position(l->file, l->number);
    r->progress.n_before += entry->offset >= 0;
    return entry->offset < 0;
}

static void admit_line(struct runner *r, const struct input_line *from, struct err *e)
{
    const char *file = inputs_name(&r->files.inputs, from->file);
    struct line *l = line_open(from, file, &r->lines.rules, ++r->lines.last_number, seconds_now());
    if (l == NULL) {
        ERR(e, ERR_MEMORY, "out of host memory: line %lld of %.200s", (long long)from->number, file);
        return;
    }
    r->progress.n_read++;
    r->progress.n_open++;
    r->lines.open_bytes += l->bytes;
    if (!is_wanted(r, l, e))
        finish_line(r, l);
    else if (l->task->error.code != 0 || (runner_has_many(r) && !runner_hold(r, l)))
        runner_append(r, l);
    else if (runner_has_many(r))
        r->lines.open_bytes -= l->bytes; /* counted by those who hold it */
    else
        (void)mailbox_post(r->worker.end[0], l->task);
}

/* Returns whether the input has to be waited for. */
static bool read_lines(struct runner *r)
{
    struct input_line line;
    struct err e = {0};
    for (int i = 0; i < TURN_LINES && has_room(r); i++) {
        enum input_got got = inputs_next(&r->files.inputs, &line, &e);
        r->progress.input_bytes_read =
            r->files.inputs.bytes_read - (int64_t)(r->files.inputs.end - r->files.inputs.begin);
        if (got == INPUT_WAIT)
            return true;
        if (got == INPUT_END)
            r->progress.at_end = true;
        else if (got == INPUT_LINE && share_takes(&r->setup.share, (uint64_t)line.index))
            admit_line(r, &line, &e);
        if (e.code != ERR_NONE)
            runner_fail(r, &e);
    }
    return false;
}

/* The bytes in an output pipe that nobody has read yet. */
static void write_pending(struct runner *r)
{
    struct err e = {0};
    if (r->files.journal.n_pending > 0 && r->end.failure.code == ERR_NONE && journal_flush(&r->files.journal, &e) != 0)
        runner_fail(r, &e);
}

static void *run_batch(void *context)
{
    struct runner *r = context;
    zmq_pollitem_t *item = r->poll;
    item[POLL_SIGNAL] = (zmq_pollitem_t){.fd = signals_fd(), .events = ZMQ_POLLIN};
    item[POLL_WORKER] = (zmq_pollitem_t){.socket = r->worker.end[0], .events = ZMQ_POLLIN};
    int n_always = POLL_REPLICAS;
    for (int i = 0; i < r->replicas.n; i++)
        item[n_always++] = (zmq_pollitem_t){.socket = r->replicas.replica[i].end[0], .events = ZMQ_POLLIN};
    if (runner_has_many(r)) {
        item[n_always++] = (zmq_pollitem_t){.socket = r->models.opener.end[0], .events = ZMQ_POLLIN};
        for (int k = 0; k < r->models.setup.n_sets; k++)
            item[n_always++] = (zmq_pollitem_t){.socket = r->models.control[k].end[0], .events = ZMQ_POLLIN};
    }
    signals_listen(true);
    while (r->state != RUNNER_ENDED) {
        bool waiting = read_lines(r);
        runner_switch(r, has_room(r) && !waiting);
        long wait = runner_keep_time(r);
        int n = n_always;
        if (waiting)
            item[n++] = (zmq_pollitem_t){.fd = r->files.inputs.fd, .events = ZMQ_POLLIN};
        if (r->files.journal.n_pending > 0 && r->end.failure.code == ERR_NONE)
            item[n++] = (zmq_pollitem_t){.fd = r->files.journal.fd, .events = ZMQ_POLLOUT};
        (void)zmq_poll(item, n, has_room(r) && !waiting ? 0 : wait);
        if ((item[POLL_SIGNAL].revents & ZMQ_POLLIN) != 0)
            runner_signal(r, signals_take(), true);
        write_pending(r);
        take_mail(r);
        runner_show(r, seconds_now());
    }
    signals_listen(false);
    return NULL;
}

int runner_open(struct runner *r, const struct runner_setup *setup, struct err *e)
{
    const struct worker_setup work = {setup->o->service.max_reply_bytes};
    int places = setup->models.n > 0 ? setup->models.deploy.n_slots : 1, n_replicas = setup->n_replicas * places;
    memset(r, 0, sizeof *r);
    r->setup = *setup;
    r->files.journal.fd = r->files.inputs.fd = -1;
    r->context = zmq_ctx_new();
    r->poll = err_calloc(e, POLL_REPLICAS + POLL_MODELS + (unsigned long)(n_replicas + setup->n_replicas) + 2,
                         sizeof *r->poll, "sockets");
    if (r->context == NULL || r->poll == NULL)
        return ERR(e, ERR_MEMORY, "no ZeroMQ context for the batch's mailboxes");
    if (ids_open(&r->files.ids, e) != 0 || runner_files_open(r, e) != 0)
        return -1;
    r->lines.rules = (struct line_rules){setup->models.n == 0 ? &r->setup.served : NULL, r->files.defaults};
    if (replicas_open(&r->replicas, r->context, n_replicas, setup->n_replicas, setup->n_ranks, e) != 0 ||
        runner_models_open(r, e) != 0 ||
        metrics_open(&r->metrics, METRICS_LOCKSTEP, setup->name, &r->replicas, !setup->o->service.run.no_prefix_caching,
                     e) != 0)
        return -1;
    ending_open(&r->end.ending, &setup->ending);
    pace_open(&r->end.pace);
    ramp_open(&r->end.ramp, setup->n_replicas);
    runner_show_start(r);
    return worker_open(&r->worker, r->context, "texts", &work, e);
}

int runner_start(struct runner *r, struct err *e)
{
    const struct batch_options *o = r->setup.o;
    r->lines.window = o->max_inflight > 0 ? (int)o->max_inflight : 0;
    r->progress.started = seconds_now();
    if (runner_files_start(r, e) != 0)
        return -1;
    if (pthread_create(&r->thread, NULL, run_batch, r) != 0)
        return ERR(e, ERR_MEMORY, "cannot start the batch thread");
    r->running = true;
    return 0;
}

void runner_give_up(struct runner *r, const struct err *why)
{
    if (r->context != NULL && !r->running && r->view.started_epoch > 0)
        runner_show_failure(r, why);
}

struct runner_outcome runner_close(struct runner *r, struct err *e)
{
    if (r->context == NULL)
        return (struct runner_outcome){0};
    if (r->running)
        (void)pthread_join(r->thread, NULL);
    worker_close(&r->worker);
    r->progress.n_left += r->progress.n_open; /* lines that were with the worker at the end */
    r->progress.n_open = 0;
    runner_files_close(r);
    held_close(&r->lines.held);
    if (e->code == ERR_NONE)
        *e = r->end.failure;
    /* Errors that are retried in every run do not count as progress. */
    int64_t n_new = r->progress.n_done - (r->setup.o->retry_failed ? r->progress.n_failed : 0);
    const struct runner_outcome outcome = {runner_status(r), n_new, r->end.ending.asked > 0};
    if (r->running)
        runner_show_end(r, e->code != ERR_NONE ? (int)e->code : outcome.status);
    ids_close(&r->files.ids);
    metrics_close(&r->metrics);
    models_close(&r->models);
    replicas_say(&r->replicas);
    replicas_close(&r->replicas); /* the last reports have been written up to here */
    free(r->poll);
    while (zmq_ctx_term(r->context) != 0 && errno == EINTR)
        continue;
    memset(r, 0, sizeof *r);
    return outcome;
}
