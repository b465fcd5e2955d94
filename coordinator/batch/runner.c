/* coordinator/batch/runner.c - the thread and its window of lines. See runner.h. */
#include "coordinator/batch/runner.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/server/finished.h"
#include "coordinator/server/mailbox.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_PER_SEQUENCE 4
#define MAX_OPEN_BYTES      ((size_t)256 << 20) /* of lines under way; one line may be larger alone */
#define TURN_LINES          64                  /* read before results have a turn again */
#define MAX_TOLD            5                   /* bad lines that are shown one by one */

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

static const char *file_of(const struct runner *r, const struct line *l)
{
    return inputs_name(&r->inputs, l->file);
}

/* Whatever is said of lines: the first few, then that there are more. */
static bool may_tell(struct runner *r)
{
    if (r->n_told <= MAX_TOLD)
        outlets_clear(&r->outlets);
    if (r->n_told == MAX_TOLD)
        log_warn("more lines have errors: they are in the output, and counted at the end");
    return r->n_told++ < MAX_TOLD;
}

/* The line's life is over. */
static void finish(struct runner *r, struct line *l)
{
    r->progress.n_open--;
    r->open_bytes -= l->bytes;
    line_close(l);
}

/* Left to the next run: nothing is written. */
static void leave(struct runner *r, struct line *l)
{
    r->progress.n_left++;
    finish(r, l);
}

static void note_result(struct runner *r, const struct line *l, const struct result_count *count, int64_t offset,
                        struct err *e)
{
    const struct protocol_error *error = &l->job->error;
    struct id_entry *entry = ids_get(&r->ids, l->id, e);
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

/* Its result, an error perhaps, is appended. */
static void append(struct runner *r, struct line *l)
{
    struct err e = {0};
    struct result_count count;
    size_t bytes = 0;
    int64_t offset = r->journal.bytes;
    double now = seconds_now();
    if (r->failure.code != ERR_NONE) {
        leave(r, l);
        return;
    }
    char *text = result_line(l, file_of(r, l), &r->style, now, &bytes, &count);
    if (text == NULL)
        ERR(&e, ERR_MEMORY, "out of host memory: the result of %.200s", l->id);
    else if (journal_append(&r->journal, text, bytes, now, &e) == 0)
        note_result(r, l, &count, offset, &e);
    free(text);
    if (e.code != ERR_NONE)
        runner_fail(r, &e);
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

/* A line that is tokenized, or was refused before. */
static void submit(struct runner *r, struct line *l)
{
    struct job *j = l->job;
    if (r->state >= RUNNER_DRAINING) {
        leave(r, l);
    } else if (j->error.code != 0 ||
               job_prepare(j, r->metrics.max_len, line_seed((uint64_t)r->setup.o->seed, l->id)) != 0) {
        append(r, l);
    } else if (runner_fits(r, l)) {
        engage(r, l);
    } else {
        leave(r, l);
    }
}

/* A job that the engine has given back. Nobody but us cancels: such a one was told to stop. */
static void returned(struct runner *r, struct line *l)
{
    struct job *j = l->job;
    bool cancelled = false;
    disengage(r, l);
    for (int i = 0; i < j->n_groups; i++)
        cancelled = cancelled || j->group[i].finish == FINISH_CANCELLED;
    finished_judge(j);
    if (cancelled) {
        leave(r, l);
    } else {
        runner_learn(r, l);
        append(r, l);
    }
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
        submit(r, j->owner);
    while ((report = mailbox_take(r->engine[0])) != NULL)
        take_report(r, report);
}

static bool has_room(const struct runner *r)
{
    return r->state == RUNNER_RUNNING && !r->progress.at_end && r->progress.n_open < r->window &&
           (r->progress.n_open == 0 || r->open_bytes < MAX_OPEN_BYTES);
}

static void tell_duplicate(struct runner *r, const struct line *l, uint64_t place)
{
    if (may_tell(r))
        log_warn("%.200s: line %lld: id \"%.100s\" is that of %.200s: line %lld; it is not run again", file_of(r, l),
                 (long long)l->number, l->id, inputs_name(&r->inputs, ids_file(place)), (long long)ids_line(place));
}

/* Is it new, and to be run? */
static bool is_wanted(struct runner *r, const struct line *l, struct err *e)
{
    struct id_entry *entry = ids_get(&r->ids, l->id, e);
    if (entry == NULL)
        return false;
    if (entry->place != 0) {
        r->progress.n_duplicates++;
        tell_duplicate(r, l, entry->place);
        return false;
    }
    entry->place = ids_place(l->file, l->number);
    r->progress.n_before += entry->offset >= 0;
    return entry->offset < 0;
}

static void admit(struct runner *r, const struct input_line *from, struct err *e)
{
    const char *file = inputs_name(&r->inputs, from->file);
    struct line *l = line_open(from, file, &r->rules, ++r->last_number, seconds_now());
    if (l == NULL) {
        ERR(e, ERR_MEMORY, "out of host memory: line %lld of %.200s", (long long)from->number, file);
        return;
    }
    r->progress.n_read++;
    r->progress.n_open++;
    r->open_bytes += l->bytes;
    if (!is_wanted(r, l, e))
        finish(r, l);
    else if (l->job->error.code != 0)
        append(r, l);
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
        r->progress.input_bytes_read = r->inputs.bytes_read - (int64_t)(r->inputs.end - r->inputs.begin);
        if (got == INPUT_WAIT)
            return true;
        if (got == INPUT_END)
            r->progress.at_end = true;
        else if (got == INPUT_LINE && share_takes(&r->setup.share, (uint64_t)line.index))
            admit(r, &line, &e);
        if (e.code != ERR_NONE)
            runner_fail(r, &e);
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
    const struct worker_setup work = {&r->setup.model, setup->tokenizer, setup->chat, setup->bos};
    memset(r, 0, sizeof *r);
    r->setup = *setup;
    r->journal.fd = r->inputs.fd = -1;
    r->context = zmq_ctx_new();
    if (r->context == NULL)
        return ERR(e, ERR_MEMORY, "no ZeroMQ context for the batch's mailboxes");
    if (ids_open(&r->ids, e) != 0 || runner_files_open(r, e) != 0)
        return -1;
    r->rules = (struct line_rules){&r->setup.model, r->defaults};
    r->style = (struct result_style){setup->o->plain, r->setup.model.name, setup->tokenizer};
    metrics_open(&r->metrics, METRICS_LOCKSTEP, r->setup.model.name, setup->n_ranks, !setup->o->no_prefix_caching);
    ending_open(&r->ending, &setup->ending);
    pace_open(&r->pace);
    runner_show_start(r);
    if (mailbox_open(r->context, "engine", r->engine, e) != 0)
        return -1;
    return worker_open(&r->worker, r->context, "texts", &work, e);
}

int runner_start(struct runner *r, int max_seqs, struct err *e)
{
    const struct options *o = r->setup.o;
    r->window = o->max_inflight > 0 ? (int)o->max_inflight : WINDOW_PER_SEQUENCE * max_seqs;
    r->progress.started = seconds_now();
    if (runner_files_start(r, e) != 0)
        return -1;
    if (pthread_create(&r->thread, NULL, run, r) != 0)
        return ERR(e, ERR_MEMORY, "cannot start the batch thread");
    r->running = true;
    return 0;
}

int runner_close(struct runner *r, struct err *e)
{
    if (r->context == NULL)
        return 0;
    if (r->running)
        (void)pthread_join(r->thread, NULL);
    worker_close(&r->worker);
    for (int i = 0; i < 2; i++)
        mailbox_close(&r->engine[i]);
    (void)zmq_ctx_term(r->context);
    runner_files_close(r);
    if (r->failure.code != ERR_NONE)
        *e = r->failure;
    int status = runner_status(r);
    if (r->running)
        runner_show_end(r, e->code != ERR_NONE ? (int)e->code : status);
    ids_close(&r->ids);
    metrics_close(&r->metrics);
    memset(r, 0, sizeof *r);
    return status;
}
