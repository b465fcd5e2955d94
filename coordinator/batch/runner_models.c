/* coordinator/batch/runner_models.c - a batch of several models: lines wait, as texts, until the model that they name
 * is loaded. A model stays as long as any line that has been read needs it, and another one replaces it only when
 * reading cannot continue, so switches are rare. See runner.h. */
#include "base/clock.h"
#include "coordinator/batch/runner.h"
#include "coordinator/tasks/mailbox.h"

#include <stdio.h>
#include <stdlib.h>

#define HELD_BYTES ((size_t)256 << 20) /* bytes of lines that wait for models */

bool runner_has_many(const struct runner *r)
{
    return models_are_many(&r->models);
}

/* ---- lines ---- */

/* The number of the model that the line names; -1: the line's error has the reason. */
static int find_model(struct runner *r, struct line *l)
{
    const struct models *m = &r->models;
    struct protocol_error *error = &l->task->error;
    if (l->model_name == NULL && m->n == 1)
        return 0;
    if (l->model_name == NULL)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, "model", "missing: --models-dir has %d models", m->n);
    int i = models_find(m, l->model_name);
    if (i < 0)
        (void)protocol_fail(error, PROTOCOL_NOT_FOUND, "model", "found \"%.80s\", which is no model of --models-dir",
                            l->model_name);
    return i;
}

bool runner_hold(struct runner *r, struct line *l)
{
    int i = find_model(r, l);
    if (i < 0) {
        line_name_field(l);
        return false;
    }
    enum deploy_answer answer = placement_ask(&r->models.placement, i, seconds_now(), &l->set);
    r->models.entry[i].counts.invocations++;
    r->models.entry[i].counts.hits += answer == DEPLOY_ENTER;
    if (answer == DEPLOY_REFUSE) {
        l->task->error = r->models.entry[i].why;
        line_name_field(l);
        return false;
    }
    l->model = i;
    l->asks = true;
    l->entered = answer == DEPLOY_ENTER;
    held_put(&r->lines.held, l);
    return true;
}

void runner_forget(struct runner *r, struct line *l)
{
    if (l->entered)
        placement_done(&r->models.placement, l->model, l->set, seconds_now());
    else if (l->asks)
        placement_leave(&r->models.placement, l->model);
    held_forget(&r->lines.held, l);
    l->entered = l->asks = false;
}

int runner_choose(const struct runner *r, const struct line *l, int spare)
{
    if (!runner_has_many(r))
        return replicas_choose(&r->replicas, l->model, spare, NULL, NULL);
    return models_choose(&r->models, l->model, l->set, l->task->served, spare);
}

void runner_settle(struct runner *r, struct line *l, int replica)
{
    int set = runner_has_many(r) ? models_set_of(&r->models, replica) : 0;
    if (set != l->set)
        placement_move(&r->models.placement, l->model, l->set, set, seconds_now());
    l->set = set;
}

/* The limit of a model's lines under way: its share of the window is that of the sequences, so that models on other
 * ranks have lines, too. */
static int window_of(const struct runner *r, int model)
{
    int64_t all = replicas_max_seqs(&r->replicas), mine = 0;
    for (int i = 0; i < r->replicas.n; i++)
        mine += r->replicas.replica[i].model == model ? r->replicas.replica[i].max_seqs : 0;
    int64_t n = all > 0 ? (runner_window(r) * mine + all - 1) / all : 1;
    return n > 0 ? (int)n : 1;
}

/* Among the loaded models that may have more lines under way, the one whose waiting line is first in the input; -1:
 * none. */
static int next_model(const struct runner *r)
{
    const struct held_queue *queue = r->lines.held.queue;
    int best = -1;
    for (int i = 0; i < r->replicas.n; i++) {
        int model = r->replicas.replica[i].model;
        if (model < 0 || queue[model].first == NULL || !placement_admits(&r->models.placement, model) ||
            queue[model].n_out >= window_of(r, model))
            continue;
        if (best < 0 || queue[model].first->task->number < queue[best].first->task->number)
            best = model;
    }
    return best;
}

void runner_release(struct runner *r)
{
    struct runner_lines *n = &r->lines;
    for (int i; r->state == RUNNER_RUNNING && r->progress.n_open - n->held.n < runner_window(r) &&
                (n->open_bytes == 0 || n->open_bytes < HELD_BYTES) && (i = next_model(r)) >= 0;) {
        struct line *l = held_take(&n->held, i);
        const struct line_rules rules = {r->models.entry[i].copy[l->set].served, r->files.defaults};
        n->open_bytes += l->bytes;
        line_check(l, &rules);
        if (l->task->error.code != 0)
            runner_append(r, l);
        else
            (void)mailbox_post(r->worker.end[0], l->task);
    }
    for (int i = 0; r->state >= RUNNER_DRAINING && n->held.n > 0 && i < n->held.n_models; i++)
        for (struct line *l; (l = held_take(&n->held, i)) != NULL;) {
            n->open_bytes += l->bytes;
            runner_leave(r, l);
        }
}

bool runner_reads_ahead(const struct runner *r)
{
    return r->lines.held.bytes < HELD_BYTES || r->progress.n_open == 0;
}

/* ---- models ---- */

/* Is nothing running because models are missing? */
static void count_idle(struct runner *r)
{
    double now = seconds_now();
    if (r->lines.idle_since > 0)
        r->lines.idle_seconds += now - r->lines.idle_since;
    bool idle = r->state == RUNNER_RUNNING && r->lines.held.n > 0 && r->progress.n_open == r->lines.held.n;
    r->lines.idle_since = idle ? now : 0;
}

void runner_switch(struct runner *r, bool reading)
{
    if (!runner_has_many(r))
        return;
    models_take(&r->models);
    runner_release(r);
    if (r->state == RUNNER_RUNNING && !reading)
        models_decide(&r->models);
    count_idle(r);
}

static void running(void *context)
{
    struct runner *r = context;
    if (r->state != RUNNER_LOADING)
        return;
    r->state = RUNNER_RUNNING;
    r->progress.loaded = seconds_now();
    outlets_soon(&r->view.outlets);
}

/* The model is loaded: waiting lines become its users. Its files must be those that made earlier results. */
static void admit(void *context, int model)
{
    struct runner *r = context;
    struct err e = {0};
    for (struct line *l = r->lines.held.queue[model].first; l != NULL; l = l->next) {
        if (!l->entered)
            l->set = placement_enter(&r->models.placement, model, seconds_now());
        l->entered = true;
    }
    if (runner_files_model(r, model, &e) != 0)
        runner_fail(r, &e);
}

/* The model cannot be loaded: all lines that name it get this error as their result. */
static void refuse_held(void *context, int model, const struct protocol_error *why)
{
    struct runner *r = context;
    for (struct line *l; (l = held_take(&r->lines.held, model)) != NULL;) {
        r->lines.open_bytes += l->bytes;
        l->task->error = *why;
        line_name_field(l);
        runner_append(r, l);
    }
}

static void unloaded(void *context, int model)
{
    (void)context;
    (void)model;
}

static void hear_signal(void *context, enum signal_wish wish)
{
    runner_signal(context, wish, false);
}

static void ended(void *context)
{
    ((struct runner *)context)->state = RUNNER_ENDED;
}

static void reports(void *context)
{
    runner_take_reports(context);
}

int runner_models_open(struct runner *r, struct err *e)
{
    const struct models_owner owner = {r, reports, running, admit, refuse_held, unloaded, hear_signal, ended};
    if (r->setup.models.n == 0)
        return 0;
    if (held_open(&r->lines.held, r->setup.models.n, e) != 0)
        return -1;
    return models_open(&r->models, r->context, &r->setup.models, NULL, &owner, &r->replicas, e);
}
