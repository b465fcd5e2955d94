/* coordinator/server/enter.c - lets a message enter its model: at once if the model is loaded, otherwise it waits. See
 * dispatch.h. */
#include "base/clock.h"
#include "coordinator/server/dispatch.h"

#include <stdio.h>
#include <string.h>

#define RETRY_MS 1000 /* retry_after for a model that is being loaded */

static int find_model(const struct models *m, struct task *j)
{
    const char *name = j->message.model;
    if (!models_are_many(m) || (name == NULL && m->n == 1))
        return 0; /* its name is checked with the other fields */
    if (name == NULL)
        return protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, "model", "missing: this server has %d models", m->n);
    int i = models_find(m, name);
    if (i < 0)
        (void)protocol_fail(&j->error, PROTOCOL_NOT_FOUND, "model", "found \"%.80s\", this server has no such model",
                            name);
    return i;
}

static void enter(struct server *s, struct task *j, int i, int set)
{
    j->ticket.model = i;
    j->ticket.set = set;
    j->ticket.entered = true;
    j->ticket.awaits_model = false;
    j->served = s->models.entry[i].copy[set].served;
}

void enter_only(struct server *s, struct task *j)
{
    if (models_are_many(&s->models))
        return;
    j->ticket.model = 0;
    j->served = s->models.entry[0].copy[0].served;
}

/* The task comes back when the model is loaded, or with the error that prevented it. */
static int wait_for_model(struct server *s, struct task *j, int i)
{
    if (s->turns[TURN_MODEL].n >= s->setup.o->max_queue)
        return server_busy(s, &j->error, "the queue is full: %d requests wait for models", s->turns[TURN_MODEL].n);
    j->ticket.model = i;
    j->ticket.awaits_model = true;
    dispatch_wait(s, j, TURN_MODEL);
    return 0;
}

/* The load continues, or begins, without it. */
static int refuse_to_wait(struct server *s, struct task *j, int i)
{
    (void)protocol_fail(&j->error, PROTOCOL_UNAVAILABLE, "model", "\"%.80s\" is being loaded", s->models.entry[i].name);
    j->error.retry_after_ms = RETRY_MS;
    placement_want(&s->models.placement, i, seconds_now());
    return -1;
}

/* -1: its error has the reason. */
static int ask_set(struct server *s, struct task *j, int i)
{
    struct model_entry *entry = &s->models.entry[i];
    int set;
    enum deploy_answer answer = placement_ask(&s->models.placement, i, seconds_now(), &set);
    entry->counts.invocations++;
    entry->counts.hits += answer == DEPLOY_ENTER;
    if (answer == DEPLOY_ENTER) {
        enter(s, j, i, set);
        return 0;
    }
    if (answer == DEPLOY_REFUSE) {
        j->error = entry->why;
        return -1;
    }
    if (j->message.wait && wait_for_model(s, j, i) == 0)
        return 0;
    placement_leave(&s->models.placement, i);
    return j->message.wait ? -1 : refuse_to_wait(s, j, i);
}

bool enter_model(struct server *s, struct task *j)
{
    bool many = models_are_many(&s->models);
    int i = find_model(&s->models, j);
    if (i >= 0 && many && j->message.op == PROTOCOL_GENERATE && server_name(s, j) != 0)
        i = -1;
    if (i < 0 || (many && server_check_state(s, &j->error) != 0) || ask_set(s, j, i) != 0) {
        server_refuse(s, j);
        return false;
    }
    return j->ticket.entered;
}

void enter_leave(struct server *s, struct task *j)
{
    if (j->ticket.entered)
        placement_done(&s->models.placement, j->ticket.model, j->ticket.set, seconds_now());
    else if (j->ticket.awaits_model)
        placement_leave(&s->models.placement, j->ticket.model);
    j->ticket.entered = j->ticket.awaits_model = false;
}

/* ---- models loaded and unloaded ---- */

static bool is_about(const void *model, const struct task *j)
{
    return j->ticket.model == *(const int *)model && j->ticket.awaits_model;
}

static bool awaits_unloading(const void *model, const struct task *j)
{
    return j->ticket.model == *(const int *)model && !j->ticket.awaits_model;
}

/* The task itself does not use the model. */
static void answer_state(struct server *s, struct task *j, int i)
{
    enter_leave(s, j);
    answer_model(s, j, i);
    dispatch_finish(s, j, PROTOCOL_OK);
}

void server_admit_model(struct server *s, int i)
{
    struct task *j;
    while (placement_admits(&s->models.placement, i) &&
           (j = turns_take_fitting(&s->turns[TURN_MODEL], is_about, &i)) != NULL) {
        s->models.entry[i].counts.waited += seconds_now() - j->arrived;
        enter(s, j, i, placement_enter(&s->models.placement, i, seconds_now()));
        if (j->message.op == PROTOCOL_LOAD)
            answer_state(s, j, i);
        else
            dispatch_go_on(s, j);
    }
}

void server_refuse_model(struct server *s, int i, const struct protocol_error *why)
{
    struct task *j;
    while ((j = turns_take_fitting(&s->turns[TURN_MODEL], is_about, &i)) != NULL) {
        j->error = *why;
        server_refuse(s, j);
    }
}

void server_unloaded_model(struct server *s, int i)
{
    struct task *j;
    while ((j = turns_take_fitting(&s->turns[TURN_MODEL], awaits_unloading, &i)) != NULL)
        answer_state(s, j, i);
}

/* ---- load, unload, pin ---- */

static int conflict(struct task *j, const char *what)
{
    return protocol_fail(&j->error, PROTOCOL_CONFLICT, "model", "\"%.80s\" %s", j->message.model, what);
}

/* 1: the answer is the model's state now; 0: it waits; -1: its error. */
static int load_model(struct server *s, struct task *j, int i)
{
    struct placement *p = &s->models.placement;
    int set;
    if (placement_admits(p, i))
        return conflict(j, "is loaded already");
    placement_want(p, i, seconds_now()); /* even if it has just failed */
    if (!j->message.wait)
        return 1;
    (void)placement_ask(p, i, seconds_now(), &set);
    if (wait_for_model(s, j, i) == 0)
        return 0;
    placement_leave(p, i);
    return -1;
}

static int unload_model(struct server *s, struct task *j, int i)
{
    const struct placed now = placement_look(&s->models.placement, i);
    if (now.state != DEPLOY_READY && now.state != DEPLOY_UNLOADING)
        return protocol_fail(&j->error, PROTOCOL_NOT_FOUND, "model", "\"%.80s\" is not loaded", j->message.model);
    if (now.pinned)
        return conflict(j, "is pinned");
    (void)placement_unload(&s->models.placement, i);
    if (!j->message.wait)
        return 1;
    j->ticket.model = i;
    dispatch_wait(s, j, TURN_MODEL);
    return 0;
}

static int pin(struct server *s, struct task *j, int i)
{
    struct task *waits;
    placement_pin(&s->models.placement, i, j->message.pinned);
    while (j->message.pinned && (waits = turns_take_fitting(&s->turns[TURN_MODEL], awaits_unloading, &i)) != NULL) {
        (void)conflict(waits, "was pinned meanwhile");
        server_refuse(s, waits);
    }
    server_admit_model(s, i);
    return 1;
}

void enter_manage(struct server *s, struct task *j)
{
    if (!dispatch_may_manage(s, j))
        return;
    int done = -1, i = -1;
    if (!models_are_many(&s->models))
        (void)protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, "op", "this server has one model (--models-dir: many)");
    else if (server_check_state(s, &j->error) == 0)
        i = find_model(&s->models, j);
    if (i >= 0)
        done = j->message.op == PROTOCOL_LOAD     ? load_model(s, j, i)
               : j->message.op == PROTOCOL_UNLOAD ? unload_model(s, j, i)
                                                  : pin(s, j, i);
    if (done == 1)
        answer_state(s, j, i);
    else if (done < 0)
        server_refuse(s, j);
}
