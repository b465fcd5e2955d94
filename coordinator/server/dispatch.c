/* coordinator/server/dispatch.c - the handling of each message, from its first byte to the end of its task. See
 * server.h. */
#include "coordinator/server/dispatch.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/server/rendezvous.h"
#include "coordinator/tasks/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void server_finish(struct server *s, struct task *task, const struct outcome *o)
{
    bool generates = task->parsed && task->message.op == PROTOCOL_GENERATE;
    if (generates)
        metrics_count(&s->metrics, o, &task->message.generate, task->ticket.replica);
    access_log_write(&s->log, task, o);
    s->trims = s->trims || task->message_bytes > LARGE_BYTES;
    enter_leave(s, task);
    server_unlist(s, task);
    s->n_open--;
    client_remove_task(task);
    task_close(task);
}

/* Answers without the engine, with this code or that of the task's error. */
void dispatch_finish(struct server *s, struct task *task, int code)
{
    const struct outcome o = {.code = task->error.code != 0 ? task->error.code : code,
                              .time.total = seconds_now() - task->arrived};
    server_finish(s, task, &o);
}

void server_refuse(struct server *s, struct task *task)
{
    answer_error(s, task, &task->error);
    dispatch_finish(s, task, task->error.code);
}

void server_cancel(struct server *s, struct task *task, enum finish_reason why)
{
    if (task->ticket.waits && (task->ticket.waits_for == TURN_REPLICA || task->ticket.waits_for == TURN_MODEL)) {
        turns_remove(&s->turns[task->ticket.waits_for], task);
        task->error = task->ticket.verdict;
        server_refuse(s, task);
        return;
    }
    if (!task->ticket.in_replica || task->ticket.cancel_step > 0) /* cancelled already: many cancels cause one order */
        return;
    task->ticket.cancel_step = 1 + s->replicas.replica[task->ticket.replica].n_steps;
    replicas_cancel(&s->replicas, task, why);
}

/* Only the client's own requests: others get the same answer as for a request that does not exist. */
static void cancel_named(struct server *s, struct task *task)
{
    struct task *target =
        task->message.request_id != NULL ? server_find(s, task->asker, task->message.request_id) : NULL;
    size_t bytes = 0;
    if (target == NULL) {
        (void)protocol_fail(&task->error, PROTOCOL_NOT_FOUND, "request_id", "no such request is open");
        server_refuse(s, task);
        return;
    }
    (void)protocol_fail(&target->ticket.verdict, PROTOCOL_CANCELLED, "", "cancelled by a message");
    server_cancel(s, target, FINISH_CANCELLED);
    char *text = reply_cancel(task->message.request_id, &bytes);
    answer_text(s, task, text, bytes);
    dispatch_finish(s, task, PROTOCOL_OK);
}

bool dispatch_may_manage(struct server *s, struct task *task)
{
    enum protocol_op op = task->message.op;
    if (s->transport.is_ipc || s->has_curve)
        return true;
    /* every user of the host may connect */
    (void)protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, "op", "%s works over ipc:// and with --curve only%s",
                        protocol_op_name(op), op == PROTOCOL_DRAIN ? "; SIGUSR1 does the same" : "");
    server_refuse(s, task);
    return false;
}

static void change_state(struct server *s, struct task *task, enum protocol_op op)
{
    size_t bytes = 0;
    if (!dispatch_may_manage(s, task))
        return;
    char *text = reply_state(task->message.request_id, op, op == PROTOCOL_DRAIN ? "draining" : "stopping", &bytes);
    answer_text(s, task, text, bytes);
    dispatch_finish(s, task, PROTOCOL_OK);
    if (op == PROTOCOL_DRAIN)
        server_drain(s, (double)s->setup.o->drain_seconds);
    else
        server_stop(s, PROTOCOL_UNAVAILABLE, "the server was shut down by a message");
}

/* A worker has written the text: megabytes of JSON take seconds, too long for this thread. */
static void answer_tokens(struct server *s, struct task *task)
{
    char *text = task->reply;
    task->reply = NULL;
    answer_text(s, task, text, task->reply_bytes);
    dispatch_finish(s, task, PROTOCOL_OK);
}

static void give_work(struct server *s, struct task *task, int worker)
{
    task->max_len = replicas_max_len(&s->replicas, task->ticket.model);
    dispatch_wait(s, task, worker == 0 ? TURN_TEXTS : TURN_LARGE);
}

/* A parsed message; a worker may have done its part already. */
static void take_back(struct server *s, struct task *task, bool worked)
{
    s->metrics.n_messages[task->message.op]++;
    if (task->error.code == 0 && protocol_needs_model(task->message.op))
        (void)server_check_bytes(s, task);
    if (task->error.code == 0 && task->message.op != PROTOCOL_CANCEL &&
        server_too_slow(s, task->ticket.client, &task->error))
        s->metrics.n_slow_clients++;
    if (task->error.code != 0) {
        server_refuse(s, task);
        return;
    }
    switch (task->message.op) {
    case PROTOCOL_GENERATE:
        if (server_admit(s, task) != 0)
            server_refuse(s, task);
        else if (worked)
            dispatch_submit(s, task);
        else
            give_work(s, task, 0);
        return;
    case PROTOCOL_TOKENIZE:
    case PROTOCOL_DETOKENIZE:
        if (server_check_state(s, &task->error) != 0)
            server_refuse(s, task);
        else if (task->reply != NULL)
            answer_tokens(s, task);
        else /* again, if a worker had it before the model was loaded */
            give_work(s, task, 0);
        return;
    case PROTOCOL_MODELS:
        if (server_check_state(s, &task->error) != 0) {
            server_refuse(s, task);
            return;
        }
        answer_models(s, task);
        break;
    case PROTOCOL_HEALTH:
        answer_health(s, task);
        break;
    case PROTOCOL_METRICS:
        answer_metrics(s, task);
        break;
    case PROTOCOL_CANCEL:
        cancel_named(s, task);
        return;
    case PROTOCOL_LOAD:
    case PROTOCOL_UNLOAD:
    case PROTOCOL_PIN:
        enter_manage(s, task);
        return;
    case PROTOCOL_DRAIN:
    case PROTOCOL_SHUTDOWN:
        change_state(s, task, task->message.op);
        return;
    }
    dispatch_finish(s, task, PROTOCOL_OK);
}

/* Gives it to the worker for large messages; a party's messages are processed in order. */
static void give_large(struct server *s, struct task *task)
{
    task->ticket.unread = true;
    task->ticket.party->n_large++;
    give_work(s, task, 1);
}

void dispatch_go_on(struct server *s, struct task *task)
{
    if (task->message_bytes > LARGE_BYTES) {
        give_large(s, task);
        return;
    }
    task_check(task);
    server_hold(s, task, sizeof *task + task->message.memory);
    take_back(s, task, false);
}

/* A small message that has just arrived, or a large one that a worker has parsed. */
static void find_way(struct server *s, struct task *task)
{
    bool needs = task->error.code == 0 && protocol_needs_model(task->message.op);
    server_hold(s, task, sizeof *task + task->message.memory);
    if (needs && !enter_model(s, task))
        return;
    if (task->error.code == 0) {
        dispatch_go_on(s, task);
        return;
    }
    take_back(s, task, false);
}

void server_receive(struct server *s, struct incoming *m)
{
    char name[PROTOCOL_MAX_ID_BYTES + 1];
    size_t bytes = zmq_msg_size(&m->body);
    struct client *c = m->n_frames == 1 ? clients_find(&s->clients, &m->channel) : NULL;
    struct task *task = c != NULL ? task_open(++s->last_number, &m->body, m->delimiter, seconds_now()) : NULL;
    s->metrics.bytes_received += bytes;
    if (task == NULL) {
        s->metrics.n_bad_messages++;
        if (c == NULL)
            (void)zmq_msg_close(&m->body);
        return;
    }
    protocol_find_party(zmq_msg_data(&task->body), bytes, name);
    client_add_task(c, task, name);
    s->n_open++;
    server_hold(s, task, sizeof *task + bytes);
    bool large = bytes > LARGE_BYTES || task->ticket.party->n_large > 0; /* a party's messages are taken in order */
    if (large && server_check_bytes(s, task) != 0) {
        task_find_id(task);
        server_refuse(s, task);
    } else if (large) {
        enter_only(s, task);
        give_large(s, task);
    } else {
        task_read(task);
        find_way(s, task);
    }
}

static void finish_generate(struct server *s, struct task *task)
{
    struct outcome o;
    answer_generate(s, task, &o);
    server_finish(s, task, &o);
}

void server_returned(struct server *s, struct task *task, int worker)
{
    bool was_unread = task->ticket.unread;
    s->at_worker[worker]--;
    if (task->ticket.writes) {
        finish_generate(s, task);
        return;
    }
    task->ticket.unread = false;
    server_hold(s, task, sizeof *task + task->message.memory);
    if (task->ticket.client != NULL && was_unread)
        task->ticket.party->n_large--;
    if (task->error.code == 0)
        task->error = task->ticket.verdict;
    if (task->ticket.answered || task->ticket.client == NULL)
        dispatch_finish(s, task, PROTOCOL_CANCELLED);
    else if (was_unread && !task->checked)
        find_way(s, task);
    else if (was_unread)
        take_back(s, task, true);
    else if (task->error.code != 0)
        server_refuse(s, task);
    else if (task->message.op == PROTOCOL_GENERATE)
        dispatch_submit(s, task);
    else
        answer_tokens(s, task);
}

bool server_too_slow(const struct server *s, const struct client *c, struct protocol_error *error)
{
    if (c->backlog <= (size_t)s->setup.o->max_client_backlog)
        return false;
    (void)protocol_fail(error, PROTOCOL_CANCELLED, "", "the client reads too slowly: %zu bytes wait for it",
                        c->backlog);
    return true;
}

/* A client that reads too slowly loses unread events of its streams, except the last one. */
static void bound_backlog(struct server *s, struct task *task)
{
    if (task->ticket.client == NULL || task->ticket.verdict.code != 0 ||
        !server_too_slow(s, task->ticket.client, &task->ticket.verdict))
        return;
    s->metrics.n_slow_clients++;
    clients_take_back(&s->clients, task->ticket.client, task->number);
    server_cancel(s, task, FINISH_CANCELLED);
}

/* May its reply be so large that writing it would block this thread for all others? */
static bool is_large(const struct task *task)
{
    return task->error.code == 0 && !task->ticket.answered && task->ticket.client != NULL &&
           task->result_bytes > LARGE_BYTES && task_reply_bytes(task) > LARGE_BYTES;
}

void server_report(struct server *s, struct report *r, int replica)
{
    metrics_take(&s->metrics, r, replica);
    for (const struct delta *p = r->first; p != NULL; p = p->next) {
        if (p->task->ticket.verdict.code == 0)
            answer_delta(s, p);
        bound_backlog(s, p->task);
    }
    for (struct task *task = r->done, *next; task != NULL; task = next) {
        next = task->work.next;
        if (models_take_back(&s->models, task))
            continue;
        if (task->ticket.client != NULL)
            dispatch_take_from_replicas(s, task);
        if (task->ticket.cancel_step > 0)
            histogram_add(&s->metrics.cancel_steps,
                          (double)(1 + s->replicas.replica[replica].n_steps - task->ticket.cancel_step));
        if (task->error.code == 0)
            task->error = task->ticket.verdict;
        task->ticket.writes = is_large(task);
        if (task->ticket.writes)
            dispatch_wait(s, task, TURN_LARGE);
        else
            finish_generate(s, task);
    }
    bool many = models_are_many(&s->models); /* models may be unloaded while the server continues */
    if (!many && s->state == SERVER_LOADING && replicas_loaded(&s->replicas))
        s->state = SERVER_READY;
    server_signal(s, r->wish, false);
    if (!many && r->ended && replicas_ended(&s->replicas))
        server_ended(s);
    steps_report_free(r);
}
