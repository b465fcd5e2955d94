/* coordinator/server/dispatch.c - the handling of each message, from its first byte to the end of its task. See
 * server.h. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/server/rendezvous.h"
#include "coordinator/server/server.h"
#include "coordinator/tasks/mailbox.h"

#include <search.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_WORKER     2    /* tasks: one in work and the next one */
#define SPARE_SHARE   4    /* a replica has this part of its places once more in sequences that wait */
#define CHECK_SECONDS 0.05 /* between two looks at time limits */

static int compare_names(const void *a, const void *b)
{
    const struct task *x = a, *y = b;
    if (x->asker != y->asker)
        return x->asker < y->asker ? -1 : 1;
    return strcmp(x->request_id, y->request_id);
}

/* The task of this connection that generates under this name, or NULL. */
static struct task *find_name(struct server *s, uint64_t asker, const char *name)
{
    struct task key = {.asker = asker};
    (void)snprintf(key.request_id, sizeof key.request_id, "%s", name);
    void *found = tfind(&key, &s->names, compare_names);
    return found != NULL ? *(struct task **)found : NULL;
}

/* A client's replies must not reveal those of others: names and seeds are random. */
static uint64_t random_number(void)
{
    uint64_t x = 0;
    randombytes_buf(&x, sizeof x);
    return x;
}

static int sequences_of(const struct protocol_generate *g)
{
    const struct search *how = &g->search;
    int each = how->num_beams > how->n ? how->num_beams : how->n;
    each = how->best_of > each ? how->best_of : each;
    return each * (g->prompt != NULL ? g->n_prompts : 1);
}

static void give_bytes_back(struct server *s, struct task *j)
{
    size_t bytes = j->message_bytes + j->result_bytes;
    s->open_bytes -= bytes;
    if (j->ticket.client != NULL)
        j->ticket.client->open_bytes -= bytes;
}

void server_finish(struct server *s, struct task *j, const struct outcome *o)
{
    bool generates = j->parsed && j->message.op == PROTOCOL_GENERATE;
    if (j->ticket.named)
        (void)tdelete(j, &s->names, compare_names);
    if (generates)
        metrics_count(&s->metrics, o, &j->message.generate, j->ticket.replica);
    access_log_write(&s->log, j, o);
    s->n_sequences -= j->ticket.n_sequences;
    s->n_open--;
    give_bytes_back(s, j);
    client_remove_task(j);
    task_close(j);
}

/* Answered without the engine: by this code, or that of its error. */
static void finish(struct server *s, struct task *j, int code)
{
    const struct outcome o = {.code = j->error.code != 0 ? j->error.code : code,
                              .time.total = seconds_now() - j->arrived};
    server_finish(s, j, &o);
}

static void refuse(struct server *s, struct task *j)
{
    answer_error(s, j, &j->error);
    finish(s, j, j->error.code);
}

static int retry_after_ms(const struct server *s)
{
    double each = metrics_mean_seconds(&s->metrics);
    const struct scheduler_stats now = replicas_stats(&s->replicas);
    int at_once = replicas_max_seqs(&s->replicas);
    double ms = 1e3 * each * (1 + (double)now.n_waiting / (at_once > 0 ? at_once : 1));
    return ms < 50 ? 50 : ms > 30000 ? 30000 : (int)ms;
}

/* Can anything be generated, tokenized, told now? */
static int check_state(const struct server *s, struct protocol_error *error)
{
    if (s->state == SERVER_READY)
        return 0;
    (void)protocol_fail(error, PROTOCOL_UNAVAILABLE, "", "%s",
                        s->state == SERVER_LOADING ? "the model is being loaded" : "the server is ending");
    error->retry_after_ms = s->state == SERVER_LOADING ? 1000 : 0;
    return -1;
}

static int busy(struct server *s, struct protocol_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int busy(struct server *s, struct protocol_error *error, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)protocol_fail(error, PROTOCOL_BUSY, "", "%s", text);
    error->retry_after_ms = retry_after_ms(s);
    return -1;
}

static int waiting_of(const struct client *c)
{
    return c->turn[TURN_TEXTS].n_sequences + c->turn[TURN_REPLICA].n_sequences;
}

/* The queue is full. The client with the most in it gives way to one that has less: its newest waiting requests are
 * refused, as if the others had come first. */
static bool make_room(struct server *s, const struct client *c, int n, int places)
{
    while (s->n_sequences > 0 && s->n_sequences + n > places) {
        int mine = waiting_of(c) + n;
        struct task *newest = turns_heaviest(&s->turns[TURN_REPLICA], mine);
        newest = newest != NULL ? newest : turns_heaviest(&s->turns[TURN_TEXTS], mine);
        if (newest == NULL || newest->ticket.client == c)
            return false;
        turns_remove(&s->turns[newest->ticket.waits_for], newest);
        (void)busy(s, &newest->error, "the queue is full, and this client has the most in it");
        refuse(s, newest);
    }
    return true;
}

static int check_limits(struct server *s, struct task *j, int n)
{
    const struct serve_options *o = s->setup.o;
    int places = (int)o->max_queue + replicas_max_seqs(&s->replicas), waiting = waiting_of(j->ticket.client);
    if (j->message.generate.priority < o->max_priority)
        return protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, "priority",
                             "%d, expected at least %lld (--max-priority; lower is more urgent)",
                             j->message.generate.priority, (long long)o->max_priority);
    if (o->max_queue_per_client > 0 && waiting > 0 && waiting + n > o->max_queue_per_client)
        return busy(s, &j->error, "%d sequences of this client wait, and this request has %d (--max-queue-per-client)",
                    waiting, n);
    if (!make_room(s, j->ticket.client, n, places))
        return busy(s, &j->error, "the queue is full: %d sequences, and this request has %d", s->n_sequences, n);
    return 0;
}

static int admit(struct server *s, struct task *j)
{
    int n = sequences_of(&j->message.generate);
    if (check_state(s, &j->error) != 0 || check_limits(s, j, n) != 0)
        return -1;
    if (j->request_id[0] == '\0')
        (void)snprintf(j->request_id, sizeof j->request_id, "r-%016llx", (unsigned long long)random_number());
    else if (find_name(s, j->asker, j->request_id) != NULL)
        return protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, "request_id", "\"%s\" is in use", j->request_id);
    if (tsearch(j, &s->names, compare_names) == NULL)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "out of host memory");
    j->ticket.named = true;
    j->ticket.n_sequences = n;
    s->n_sequences += n;
    return 0;
}

static void wait_turn(struct server *s, struct task *j, enum turn_kind kind)
{
    j->ticket.waits_for = kind;
    turns_put(&s->turns[kind], j);
}

/* Results count beside messages: one client may have half of what all may have. */
static int reserve_results(struct server *s, struct task *j)
{
    size_t bytes = j->result_bytes;
    j->result_bytes = 0;
    if (s->open_bytes + bytes > MAX_OPEN_BYTES || j->ticket.client->open_bytes + bytes > MAX_OPEN_BYTES / 2)
        return busy(s, &j->error, "results of %zu bytes are possible, beside %zu bytes that are under way", bytes,
                    s->open_bytes);
    j->result_bytes = bytes;
    s->open_bytes += bytes;
    j->ticket.client->open_bytes += bytes;
    return 0;
}

/* The task goes to a replica. */
static void give_replica(struct server *s, struct task *j, int replica)
{
    s->n_at_replicas += j->ticket.client->n_in_replicas == 0;
    j->ticket.client->n_in_replicas += j->ticket.n_sequences;
    replicas_submit(&s->replicas, j, replica);
}

/* replicas have so many sequences of the client no more. */
static void take_from_replicas(struct server *s, struct client *c, int n_sequences)
{
    s->n_at_replicas -= n_sequences > 0 && n_sequences == c->n_in_replicas;
    c->n_in_replicas -= n_sequences;
}

/* A replica has what it runs and a little more, so that no place in it is ever free; the rest waits here, where clients have their
 * turns. */
static int spare_places(const struct server *s)
{
    return replicas_max_seqs(&s->replicas) / (s->replicas.n > 0 ? s->replicas.n : 1) / SPARE_SHARE;
}

/* Have replicas less than its share of this client? Then it does not wait until others have left: schedulers give it its turn. */
static bool is_below_share(const struct server *s, const struct client *c)
{
    int places = replicas_max_seqs(&s->replicas), others = s->n_at_replicas - (c->n_in_replicas > 0);
    return c->n_in_replicas < places / (others + 1);
}

/* A task that was admitted, before a drain began perhaps: it is one of the open requests that may finish. Once the server stops
 * nothing comes here: what was open has its answer. */
static void submit(struct server *s, struct task *j)
{
    /* 53 bits: every JSON library keeps them. */
    if (task_prepare(j, replicas_max_len(&s->replicas), s->setup.o->service.max_reply_bytes, random_number() >> 11) !=
        0)
        j->result_bytes = 0;
    else
        (void)reserve_results(s, j);
    if (j->error.code != 0) {
        refuse(s, j);
        return;
    }
    j->ticket.queued = seconds_now();
    if (j->ticket.client->turn[TURN_REPLICA].first == NULL && is_below_share(s, j->ticket.client))
        give_replica(s, j, replicas_choose(&s->replicas, -1));
    else
        wait_turn(s, j, TURN_REPLICA);
}

static void feed_worker(struct server *s, int worker)
{
    struct task *j;
    while (s->at_worker[worker] < AT_WORKER && (j = turns_take(&s->turns[worker])) != NULL) {
        s->at_worker[worker]++;
        (void)mailbox_post(s->worker[worker].end[0], j);
    }
}

static void feed_replicas(struct server *s)
{
    int replica;
    while (s->turns[TURN_REPLICA].n > 0 && (replica = replicas_choose(&s->replicas, spare_places(s))) >= 0)
        give_replica(s, turns_take(&s->turns[TURN_REPLICA]), replica);
}

void server_feed(struct server *s)
{
    for (int i = 0; i < 2; i++)
        feed_worker(s, i);
    if (s->state == SERVER_READY || s->state == SERVER_DRAINING)
        feed_replicas(s);
}

void server_check_times(struct server *s)
{
    struct turns *t = &s->turns[TURN_REPLICA];
    double now = seconds_now();
    if (t->n == 0 || now - s->times_checked < CHECK_SECONDS)
        return;
    s->times_checked = now;
    for (struct client *c = s->clients.first; c != NULL; c = c->next)
        for (struct task *j = c->turn[TURN_REPLICA].first, *next; j != NULL; j = next) {
            int64_t limit = j->message.generate.timeout_ms;
            next = j->ticket.turn_next;
            if (limit == 0 || now - j->arrived < 1e-3 * (double)limit)
                continue;
            turns_remove(t, j);
            (void)protocol_fail(&j->error, PROTOCOL_TIMEOUT, "timeout_ms", "%lld ms have passed", (long long)limit);
            refuse(s, j);
        }
}

void server_cancel(struct server *s, struct task *j, enum finish_reason why)
{
    if (j->ticket.waits && j->ticket.waits_for == TURN_REPLICA) {
        turns_remove(&s->turns[TURN_REPLICA], j);
        j->error = j->ticket.verdict;
        refuse(s, j);
        return;
    }
    if (!j->ticket.in_replica || j->ticket.cancel_step > 0) /* it has been told: a flood of cancels is one order */
        return;
    j->ticket.cancel_step = 1 + s->replicas.replica[j->ticket.replica].n_steps;
    replicas_cancel(&s->replicas, j, why);
}

/* Nobody else's request: a stranger hears what it would hear of one that is not there. */
static void cancel(struct server *s, struct task *j)
{
    struct task *target = j->message.request_id != NULL ? find_name(s, j->asker, j->message.request_id) : NULL;
    size_t bytes = 0;
    if (target == NULL) {
        (void)protocol_fail(&j->error, PROTOCOL_NOT_FOUND, "request_id", "no such request is open");
        refuse(s, j);
        return;
    }
    (void)protocol_fail(&target->ticket.verdict, PROTOCOL_CANCELLED, "", "cancelled by a message");
    server_cancel(s, target, FINISH_CANCELLED);
    char *text = reply_cancel(j->message.request_id, &bytes);
    answer_text(s, j, text, bytes);
    finish(s, j, PROTOCOL_OK);
}

static void change_state(struct server *s, struct task *j, enum protocol_op op)
{
    size_t bytes = 0;
    if (!s->transport.is_ipc && !s->has_curve) { /* every user of the host may connect */
        (void)protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, "op", "%s works over ipc:// and with --curve only%s",
                            protocol_op_name(op), op == PROTOCOL_DRAIN ? "; SIGUSR1 does the same" : "");
        refuse(s, j);
        return;
    }
    char *text = reply_state(j->message.request_id, op, op == PROTOCOL_DRAIN ? "draining" : "stopping", &bytes);
    answer_text(s, j, text, bytes);
    finish(s, j, PROTOCOL_OK);
    if (op == PROTOCOL_DRAIN)
        server_drain(s, (double)s->setup.o->drain_seconds);
    else
        server_stop(s, PROTOCOL_UNAVAILABLE, "the server was shut down by a message");
}

/* With what a worker has written: megabytes of JSON take seconds, which this thread has not. */
static void answer_tokens(struct server *s, struct task *j)
{
    char *text = j->reply;
    j->reply = NULL;
    answer_text(s, j, text, j->reply_bytes);
    finish(s, j, PROTOCOL_OK);
}

static void give_work(struct server *s, struct task *j, int worker)
{
    j->max_len = replicas_max_len(&s->replicas);
    wait_turn(s, j, worker == 0 ? TURN_TEXTS : TURN_LARGE);
}

/* A message that is parsed; a worker may have done its part already. */
static void take_back(struct server *s, struct task *j, bool worked)
{
    s->metrics.n_messages[j->message.op]++;
    if (j->error.code == 0 && j->message.op != PROTOCOL_CANCEL && server_too_slow(s, j->ticket.client, &j->error))
        s->metrics.n_slow_clients++;
    if (j->error.code != 0) {
        refuse(s, j);
        return;
    }
    switch (j->message.op) {
    case PROTOCOL_GENERATE:
        if (admit(s, j) != 0)
            refuse(s, j);
        else if (worked)
            submit(s, j);
        else
            give_work(s, j, 0);
        return;
    case PROTOCOL_TOKENIZE:
    case PROTOCOL_DETOKENIZE:
        if (check_state(s, &j->error) != 0)
            refuse(s, j);
        else if (j->reply != NULL)
            answer_tokens(s, j);
        else /* once more, if a worker had it before the model was loaded */
            give_work(s, j, 0);
        return;
    case PROTOCOL_MODELS:
        if (check_state(s, &j->error) != 0) {
            refuse(s, j);
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
        cancel(s, j);
        return;
    case PROTOCOL_DRAIN:
    case PROTOCOL_SHUTDOWN:
        change_state(s, j, j->message.op);
        return;
    }
    finish(s, j, PROTOCOL_OK);
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
    s->open_bytes += bytes;
    c->open_bytes += bytes;
    if (s->open_bytes > MAX_OPEN_BYTES || (c->open_bytes > MAX_OPEN_BYTES / 2 && c->open_bytes > bytes)) {
        (void)busy(s, &j->error, "messages and results of %zu bytes are under way, %zu of them this client's",
                   s->open_bytes - bytes, c->open_bytes - bytes);
        refuse(s, j);
    } else if (bytes > LARGE_BYTES || c->n_large > 0) { /* a client's messages are taken in their order */
        j->ticket.unread = true;
        c->n_large++;
        give_work(s, j, 1);
    } else {
        task_parse(j, &s->setup.model);
        take_back(s, j, false);
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
    if (j->ticket.client != NULL && was_unread)
        j->ticket.client->n_large--;
    if (j->error.code == 0)
        j->error = j->ticket.verdict;
    if (j->ticket.answered || j->ticket.client == NULL)
        finish(s, j, PROTOCOL_CANCELLED);
    else if (was_unread)
        take_back(s, j, true);
    else if (j->error.code != 0)
        refuse(s, j);
    else if (j->message.op == PROTOCOL_GENERATE)
        submit(s, j);
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

/* A client that reads too slowly loses what it does not read of a stream, but for the last event. */
static void bound_backlog(struct server *s, struct task *j)
{
    if (j->ticket.client == NULL || j->ticket.verdict.code != 0 ||
        !server_too_slow(s, j->ticket.client, &j->ticket.verdict))
        return;
    s->metrics.n_slow_clients++;
    clients_take_back(&s->clients, j->ticket.client, j->number);
    server_cancel(s, j, FINISH_CANCELLED);
}

/* May its reply be so large that writing it takes this thread from all others? */
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
        if (j->ticket.client != NULL)
            take_from_replicas(s, j->ticket.client, j->ticket.n_sequences);
        if (j->ticket.cancel_step > 0)
            histogram_add(&s->metrics.cancel_steps,
                          (double)(1 + s->replicas.replica[replica].n_steps - j->ticket.cancel_step));
        if (j->error.code == 0)
            j->error = j->ticket.verdict;
        j->ticket.writes = is_large(j);
        if (j->ticket.writes)
            wait_turn(s, j, TURN_LARGE);
        else
            finish_generate(s, j);
    }
    if (s->state == SERVER_LOADING && replicas_loaded(&s->replicas))
        s->state = SERVER_READY;
    server_signal(s, r->wish, false);
    if (r->ended && replicas_ended(&s->replicas)) {
        s->state = SERVER_ENDED;
        s->ended_at = seconds_now();
    }
    steps_report_free(r);
}

/* Called before a client is forgotten: what it asked for has no reader any more. */
void server_client_left(void *server, struct client *c)
{
    struct server *s = server;
    bool open = c->tasks != NULL;
    while (c->tasks != NULL) {
        struct task *j = c->tasks;
        (void)protocol_fail(&j->ticket.verdict, PROTOCOL_CANCELLED, "", "the client is gone");
        if (j->ticket.waits) { /* with whatever it waits for nobody need begin */
            turns_remove(&s->turns[j->ticket.waits_for], j);
            finish(s, j, PROTOCOL_CANCELLED);
            continue;
        }
        atomic_store(&j->abandoned, true);
        client_remove_task(j);
        server_cancel(s, j, FINISH_CANCELLED);
    }
    take_from_replicas(s, c, c->n_in_replicas); /* what is there still is nobody's */
    s->metrics.n_lost_clients += open;
}

void server_drain(struct server *s, double seconds)
{
    if (s->state == SERVER_DRAINING || s->state >= SERVER_STOPPING)
        return;
    s->state = SERVER_DRAINING;
    s->drain_until = seconds_now() + seconds;
    log_note("draining: %d open requests have %.0f s", s->n_open, seconds);
}

void server_stop(struct server *s, enum protocol_code code, const char *why)
{
    if (s->state >= SERVER_STOPPING)
        return;
    s->state = SERVER_STOPPING;
    for (struct client *c = s->clients.first; c != NULL; c = c->next)
        for (struct task *j = c->tasks, *next; j != NULL; j = next) {
            struct protocol_error error = {0};
            next = j->ticket.next;
            (void)protocol_fail(&error, code, "", "%s", why);
            if (!j->ticket.answered && (j->ticket.unread || j->message.op == PROTOCOL_GENERATE))
                s->n_cut_short++;
            answer_error(s, j, &error);
            if (j->ticket.waits) {
                turns_remove(&s->turns[j->ticket.waits_for], j);
                finish(s, j, code);
            }
        }
    if (*why != '\0')
        log_note("ending: %s; %d open requests were answered with an error", why, s->n_cut_short);
    replicas_stop(&s->replicas);
}

/* Asked a second time to end, a second later or more, there is no time left to finish anything. */
void server_signal(struct server *s, enum signal_wish wish, bool own)
{
    double now = seconds_now();
    if (wish == WISH_DRAIN)
        server_drain(s, (double)s->setup.o->drain_seconds);
    if (wish == WISH_FAIL) {
        server_stop(s, PROTOCOL_INTERNAL, "the engine has failed");
        rendezvous_remove(s);
        transport_unlink(&s->transport);
    }
    if (wish != WISH_END)
        return;
    bool again = own && s->end_asked > 0 && now - s->end_asked > 1;
    if (s->setup.end_seconds <= 0 || again)
        server_stop(s, PROTOCOL_UNAVAILABLE, "the server was told to end by a signal");
    else if (s->end_asked == 0 && s->state == SERVER_DRAINING)
        s->drain_until = now + s->setup.end_seconds < s->drain_until ? now + s->setup.end_seconds : s->drain_until;
    else if (s->end_asked == 0)
        server_drain(s, s->setup.end_seconds);
    s->end_asked = s->end_asked > 0 ? s->end_asked : now;
}
