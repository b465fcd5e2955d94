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

void server_finish(struct server *s, struct task *j, const struct outcome *o)
{
    bool generates = j->parsed && j->message.op == PROTOCOL_GENERATE;
    if (generates)
        metrics_count(&s->metrics, o, &j->message.generate, j->ticket.replica);
    access_log_write(&s->log, j, o);
    s->trims = s->trims || j->message_bytes > LARGE_BYTES;
    enter_leave(s, j);
    server_unlist(s, j);
    s->n_open--;
    client_remove_task(j);
    task_close(j);
}

/* Answers without the engine, with this code or that of the task's error. */
void dispatch_finish(struct server *s, struct task *j, int code)
{
    const struct outcome o = {.code = j->error.code != 0 ? j->error.code : code,
                              .time.total = seconds_now() - j->arrived};
    server_finish(s, j, &o);
}

void server_refuse(struct server *s, struct task *j)
{
    answer_error(s, j, &j->error);
    dispatch_finish(s, j, j->error.code);
}

void server_cancel(struct server *s, struct task *j, enum finish_reason why)
{
    if (j->ticket.waits && (j->ticket.waits_for == TURN_REPLICA || j->ticket.waits_for == TURN_MODEL)) {
        turns_remove(&s->turns[j->ticket.waits_for], j);
        j->error = j->ticket.verdict;
        server_refuse(s, j);
        return;
    }
    if (!j->ticket.in_replica || j->ticket.cancel_step > 0) /* cancelled already: many cancels cause one order */
        return;
    j->ticket.cancel_step = 1 + s->replicas.replica[j->ticket.replica].n_steps;
    replicas_cancel(&s->replicas, j, why);
}

/* Only the client's own requests: others get the same answer as for a request that does not exist. */
static void cancel_named(struct server *s, struct task *j)
{
    struct task *target = j->message.request_id != NULL ? server_find(s, j->asker, j->message.request_id) : NULL;
    size_t bytes = 0;
    if (target == NULL) {
        (void)protocol_fail(&j->error, PROTOCOL_NOT_FOUND, "request_id", "no such request is open");
        server_refuse(s, j);
        return;
    }
    (void)protocol_fail(&target->ticket.verdict, PROTOCOL_CANCELLED, "", "cancelled by a message");
    server_cancel(s, target, FINISH_CANCELLED);
    char *text = reply_cancel(j->message.request_id, &bytes);
    answer_text(s, j, text, bytes);
    dispatch_finish(s, j, PROTOCOL_OK);
}

bool dispatch_may_manage(struct server *s, struct task *j)
{
    enum protocol_op op = j->message.op;
    if (s->transport.is_ipc || s->has_curve)
        return true;
    /* every user of the host may connect */
    (void)protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, "op", "%s works over ipc:// and with --curve only%s",
                        protocol_op_name(op), op == PROTOCOL_DRAIN ? "; SIGUSR1 does the same" : "");
    server_refuse(s, j);
    return false;
}

static void change_state(struct server *s, struct task *j, enum protocol_op op)
{
    size_t bytes = 0;
    if (!dispatch_may_manage(s, j))
        return;
    char *text = reply_state(j->message.request_id, op, op == PROTOCOL_DRAIN ? "draining" : "stopping", &bytes);
    answer_text(s, j, text, bytes);
    dispatch_finish(s, j, PROTOCOL_OK);
    if (op == PROTOCOL_DRAIN)
        server_drain(s, (double)s->setup.o->drain_seconds);
    else
        server_stop(s, PROTOCOL_UNAVAILABLE, "the server was shut down by a message");
}

/* A worker has written the text: megabytes of JSON take seconds, too long for this thread. */
static void answer_tokens(struct server *s, struct task *j)
{
    char *text = j->reply;
    j->reply = NULL;
    answer_text(s, j, text, j->reply_bytes);
    dispatch_finish(s, j, PROTOCOL_OK);
}

static void give_work(struct server *s, struct task *j, int worker)
{
    j->max_len = replicas_max_len(&s->replicas, j->ticket.model);
    dispatch_wait(s, j, worker == 0 ? TURN_TEXTS : TURN_LARGE);
}

/* A parsed message; a worker may have done its part already. */
static void take_back(struct server *s, struct task *j, bool worked)
{
    s->metrics.n_messages[j->message.op]++;
    if (j->error.code == 0 && protocol_needs_model(j->message.op))
        (void)server_check_bytes(s, j);
    if (j->error.code == 0 && j->message.op != PROTOCOL_CANCEL && server_too_slow(s, j->ticket.client, &j->error))
        s->metrics.n_slow_clients++;
    if (j->error.code != 0) {
        server_refuse(s, j);
        return;
    }
    switch (j->message.op) {
    case PROTOCOL_GENERATE:
        if (server_admit(s, j) != 0)
            server_refuse(s, j);
        else if (worked)
            dispatch_submit(s, j);
        else
            give_work(s, j, 0);
        return;
    case PROTOCOL_TOKENIZE:
    case PROTOCOL_DETOKENIZE:
        if (server_check_state(s, &j->error) != 0)
            server_refuse(s, j);
        else if (j->reply != NULL)
            answer_tokens(s, j);
        else /* again, if a worker had it before the model was loaded */
            give_work(s, j, 0);
        return;
    case PROTOCOL_MODELS:
        if (server_check_state(s, &j->error) != 0) {
            server_refuse(s, j);
            return;
        }
        answer_models(s, j);
        break;
    case PROTOCOL_HEALTH:
        answer_health(s, j);
        break;
    case PROTOCOL_METRICS:
        answer_metrics(s, j);
        break;
    case PROTOCOL_CANCEL:
        cancel_named(s, j);
        return;
    case PROTOCOL_LOAD:
    case PROTOCOL_UNLOAD:
    case PROTOCOL_PIN:
        enter_manage(s, j);
        return;
    case PROTOCOL_DRAIN:
    case PROTOCOL_SHUTDOWN:
        change_state(s, j, j->message.op);
        return;
    }
    dispatch_finish(s, j, PROTOCOL_OK);
}

/* Gives it to the worker for large messages; a client's messages are processed in order. */
static void give_large(struct server *s, struct task *j)
{
    j->ticket.unread = true;
    j->ticket.client->n_large++;
    give_work(s, j, 1);
}

void dispatch_go_on(struct server *s, struct task *j)
{
    if (j->message_bytes > LARGE_BYTES) {
        give_large(s, j);
        return;
    }
    task_check(j);
    server_hold(s, j, sizeof *j + j->message.memory);
    take_back(s, j, false);
}

/* A small message that has just arrived, or a large one that a worker has parsed. */
static void find_way(struct server *s, struct task *j)
{
    bool needs = j->error.code == 0 && protocol_needs_model(j->message.op);
    server_hold(s, j, sizeof *j + j->message.memory);
    if (needs && !enter_model(s, j))
        return;
    if (j->error.code == 0) {
        dispatch_go_on(s, j);
        return;
    }
    take_back(s, j, false);
}

void server_receive(struct server *s, struct incoming *m)
{
    size_t bytes = zmq_msg_size(&m->body);
    struct client *c = m->n_frames == 1 ? clients_find(&s->clients, &m->channel) : NULL;
    struct task *j = c != NULL ? task_open(++s->last_number, &m->body, m->delimiter, seconds_now()) : NULL;
    s->metrics.bytes_received += bytes;
    if (j == NULL) {
        s->metrics.n_bad_messages++;
        if (c == NULL)
            (void)zmq_msg_close(&m->body);
        return;
    }
    client_add_task(c, j);
    j->asker = c->channel.number;
    s->n_open++;
    server_hold(s, j, sizeof *j + bytes);
    bool large = bytes > LARGE_BYTES || c->n_large > 0; /* a client's messages are taken in their order */
    if (large && server_check_bytes(s, j) != 0) {
        server_refuse(s, j);
    } else if (large) {
        enter_only(s, j);
        give_large(s, j);
    } else {
        task_read(j);
        find_way(s, j);
    }
}

static void finish_generate(struct server *s, struct task *j)
{
    struct outcome o;
    answer_generate(s, j, &o);
    server_finish(s, j, &o);
}

void server_returned(struct server *s, struct task *j, int worker)
{
    bool was_unread = j->ticket.unread;
    s->at_worker[worker]--;
    if (j->ticket.writes) {
        finish_generate(s, j);
        return;
    }
    j->ticket.unread = false;
    server_hold(s, j, sizeof *j + j->message.memory);
    if (j->ticket.client != NULL && was_unread)
        j->ticket.client->n_large--;
    if (j->error.code == 0)
        j->error = j->ticket.verdict;
    if (j->ticket.answered || j->ticket.client == NULL)
        dispatch_finish(s, j, PROTOCOL_CANCELLED);
    else if (was_unread && !j->checked)
        find_way(s, j);
    else if (was_unread)
        take_back(s, j, true);
    else if (j->error.code != 0)
        server_refuse(s, j);
    else if (j->message.op == PROTOCOL_GENERATE)
        dispatch_submit(s, j);
    else
        answer_tokens(s, j);
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
static void bound_backlog(struct server *s, struct task *j)
{
    if (j->ticket.client == NULL || j->ticket.verdict.code != 0 ||
        !server_too_slow(s, j->ticket.client, &j->ticket.verdict))
        return;
    s->metrics.n_slow_clients++;
    clients_take_back(&s->clients, j->ticket.client, j->number);
    server_cancel(s, j, FINISH_CANCELLED);
}

/* May its reply be so large that writing it would block this thread for all others? */
static bool is_large(const struct task *j)
{
    return j->error.code == 0 && !j->ticket.answered && j->ticket.client != NULL && j->result_bytes > LARGE_BYTES &&
           task_reply_bytes(j) > LARGE_BYTES;
}

void server_report(struct server *s, struct report *r, int replica)
{
    metrics_take(&s->metrics, r, replica);
    for (const struct delta *p = r->first; p != NULL; p = p->next) {
        if (p->task->ticket.verdict.code == 0)
            answer_delta(s, p);
        bound_backlog(s, p->task);
    }
    for (struct task *j = r->done, *next; j != NULL; j = next) {
        next = j->work.next;
        if (models_take_back(&s->models, j))
            continue;
        if (j->ticket.client != NULL)
            dispatch_take_from_replicas(s, j->ticket.client, j->ticket.n_sequences);
        if (j->ticket.cancel_step > 0)
            histogram_add(&s->metrics.cancel_steps,
                          (double)(1 + s->replicas.replica[replica].n_steps - j->ticket.cancel_step));
        if (j->error.code == 0)
            j->error = j->ticket.verdict;
        j->ticket.writes = is_large(j);
        if (j->ticket.writes)
            dispatch_wait(s, j, TURN_LARGE);
        else
            finish_generate(s, j);
    }
    bool many = models_are_many(&s->models); /* models may be unloaded while the server continues */
    if (!many && s->state == SERVER_LOADING && replicas_loaded(&s->replicas))
        s->state = SERVER_READY;
    server_signal(s, r->wish, false);
    if (!many && r->ended && replicas_ended(&s->replicas))
        server_ended(s);
    steps_report_free(r);
}
