/* coordinator/server/enter.c - lets a message enter its model: at once if the model is loaded, otherwise it waits. See
 * dispatch.h. */
#include "base/clock.h"
#include "coordinator/server/dispatch.h"

#include <stdio.h>
#include <string.h>

#define RETRY_MS 1000 /* retry_after for a model that is being loaded */

static int find_model(const struct models *m, struct task *task)
{
    const char *name = task->message.model;
    if (!models_are_many(m) || (name == NULL && m->n == 1))
        return 0; /* its name is checked with the other fields */
    if (name == NULL)
        return protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, "model", "missing: this server has %d models", m->n);
    int i = models_find(m, name);
    if (i < 0)
        (void)protocol_fail(&task->error, PROTOCOL_NOT_FOUND, "model", "found \"%.80s\", this server has no such model",
                            name);
    return i;
}

static void enter(struct server *s, struct task *task, int i, int set)
{
    task->ticket.model = i;
    task->ticket.set = set;
    task->ticket.entered = true;
    task->ticket.awaits_model = false;
    task->served = s->models.entry[i].copy[set].served;
}

void enter_only(struct server *s, struct task *task)
{
    if (models_are_many(&s->models))
        return;
    task->ticket.model = 0;
    task->served = s->models.entry[0].copy[0].served;
}

/* The task comes back when the model is loaded, or with the error that prevented it. */
static int wait_for_model(struct server *s, struct task *task, int i)
{
    if (s->turns[TURN_MODEL].n >= s->setup.o->max_queue)
        return server_busy(s, &task->error, "the queue is full: %d requests wait for models", s->turns[TURN_MODEL].n);
    task->ticket.model = i;
    task->ticket.awaits_model = true;
    dispatch_wait(s, task, TURN_MODEL);
    return 0;
}

/* The load continues, or begins, without it. */
static int refuse_to_wait(struct server *s, struct task *task, int i)
{
    (void)protocol_fail(&task->error, PROTOCOL_UNAVAILABLE, "model", "\"%.80s\" is being loaded",
                        s->models.entry[i].name);
    task->error.retry_after_ms = RETRY_MS;
    placement_want(&s->models.placement, i, seconds_now());
    return -1;
}

/* -1: its error has the reason. */
static int ask_set(struct server *s, struct task *task, int i)
{
    struct model_entry *entry = &s->models.entry[i];
    int set;
    enum deploy_answer answer = placement_ask(&s->models.placement, i, seconds_now(), &set);
    entry->counts.invocations++;
    entry->counts.hits += answer == DEPLOY_ENTER;
    if (answer == DEPLOY_ENTER) {
        enter(s, task, i, set);
        return 0;
    }
    if (answer == DEPLOY_REFUSE) {
        task->error = entry->why;
        return -1;
    }
    if (task->message.wait && wait_for_model(s, task, i) == 0)
        return 0;
    placement_leave(&s->models.placement, i);
    return task->message.wait ? -1 : refuse_to_wait(s, task, i);
}

bool enter_model(struct server *s, struct task *task)
{
    bool many = models_are_many(&s->models);
    int i = find_model(&s->models, task);
    if (i >= 0 && many && task->message.op == PROTOCOL_GENERATE && server_name(s, task) != 0)
        i = -1;
    if (i < 0 || (many && server_check_state(s, &task->error) != 0) || ask_set(s, task, i) != 0) {
        server_refuse(s, task);
        return false;
    }
    return task->ticket.entered;
}

void enter_leave(struct server *s, struct task *task)
{
    if (task->ticket.entered)
        placement_done(&s->models.placement, task->ticket.model, task->ticket.set, seconds_now());
    else if (task->ticket.awaits_model)
        placement_leave(&s->models.placement, task->ticket.model);
    task->ticket.entered = task->ticket.awaits_model = false;
}

/* ---- models loaded and unloaded ---- */

static bool is_about(const void *model, const struct task *task)
{
    return task->ticket.model == *(const int *)model && task->ticket.awaits_model;
}

static bool awaits_unloading(const void *model, const struct task *task)
{
    return task->ticket.model == *(const int *)model && !task->ticket.awaits_model;
}

/* The task itself does not use the model. */
static void answer_state(struct server *s, struct task *task, int i)
{
    enter_leave(s, task);
    answer_model(s, task, i);
    dispatch_finish(s, task, PROTOCOL_OK);
}

void server_admit_model(struct server *s, int i)
{
    struct task *task;
    while (placement_admits(&s->models.placement, i) &&
           (task = turns_take_fitting(&s->turns[TURN_MODEL], is_about, &i)) != NULL) {
        s->models.entry[i].counts.waited += seconds_now() - task->arrived;
        enter(s, task, i, placement_enter(&s->models.placement, i, seconds_now()));
        if (task->message.op == PROTOCOL_LOAD)
            answer_state(s, task, i);
        else
            dispatch_go_on(s, task);
    }
}

void server_refuse_model(struct server *s, int i, const struct protocol_error *why)
{
    struct task *task;
    while ((task = turns_take_fitting(&s->turns[TURN_MODEL], is_about, &i)) != NULL) {
        task->error = *why;
        server_refuse(s, task);
    }
}

void server_unloaded_model(struct server *s, int i)
{
    struct task *task;
    while ((task = turns_take_fitting(&s->turns[TURN_MODEL], awaits_unloading, &i)) != NULL)
        answer_state(s, task, i);
}

/* ---- load, unload, pin ---- */

static int conflict(struct task *task, const char *what)
{
    return protocol_fail(&task->error, PROTOCOL_CONFLICT, "model", "\"%.80s\" %s", task->message.model, what);
}

/* 1: the answer is the model's state now; 0: it waits; -1: its error. */
static int load_model(struct server *s, struct task *task, int i)
{
    struct placement *p = &s->models.placement;
    int set;
    if (placement_admits(p, i))
        return conflict(task, "is loaded already");
    placement_want(p, i, seconds_now()); /* even if it has just failed */
    if (!task->message.wait)
        return 1;
    (void)placement_ask(p, i, seconds_now(), &set);
    if (wait_for_model(s, task, i) == 0)
        return 0;
    placement_leave(p, i);
    return -1;
}

static int unload_model(struct server *s, struct task *task, int i)
{
    const struct placed now = placement_look(&s->models.placement, i);
    if (now.state != DEPLOY_READY && now.state != DEPLOY_UNLOADING)
        return protocol_fail(&task->error, PROTOCOL_NOT_FOUND, "model", "\"%.80s\" is not loaded", task->message.model);
    if (now.pinned)
        return conflict(task, "is pinned");
    (void)placement_unload(&s->models.placement, i);
    if (!task->message.wait)
        return 1;
    task->ticket.model = i;
    dispatch_wait(s, task, TURN_MODEL);
    return 0;
}

static int pin(struct server *s, struct task *task, int i)
{
    struct task *waits;
    placement_pin(&s->models.placement, i, task->message.pinned);
    while (task->message.pinned && (waits = turns_take_fitting(&s->turns[TURN_MODEL], awaits_unloading, &i)) != NULL) {
        (void)conflict(waits, "was pinned meanwhile");
        server_refuse(s, waits);
    }
    server_admit_model(s, i);
    return 1;
}

void enter_manage(struct server *s, struct task *task)
{
    if (!dispatch_may_manage(s, task))
        return;
    int done = -1, i = -1;
    if (!models_are_many(&s->models))
        (void)protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, "op", "this server has one model (--models-dir: many)");
    else if (server_check_state(s, &task->error) == 0)
        i = find_model(&s->models, task);
    if (i >= 0)
        done = task->message.op == PROTOCOL_LOAD     ? load_model(s, task, i)
               : task->message.op == PROTOCOL_UNLOAD ? unload_model(s, task, i)
                                                     : pin(s, task, i);
    if (done == 1)
        answer_state(s, task, i);
    else if (done < 0)
        server_refuse(s, task);
}
