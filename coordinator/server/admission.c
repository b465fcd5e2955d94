/* coordinator/server/admission.c - admission of messages: names of requests, places in the queue, memory. See
 * server.h. */
#include "coordinator/server/server.h"

#include <search.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_OPEN_BYTES ((size_t)1 << 30) /* of all tasks together, with their messages and results */

static int compare_names(const void *a, const void *b)
{
    const struct task *x = a, *y = b;
    if (x->asker != y->asker)
        return x->asker < y->asker ? -1 : 1;
    return strcmp(x->request_id, y->request_id);
}

struct task *server_find(struct server *s, uint64_t asker, const char *name)
{
    struct task key = {.asker = asker};
    (void)snprintf(key.request_id, sizeof key.request_id, "%s", name);
    void *found = tfind(&key, &s->names, compare_names);
    return found != NULL ? *(struct task **)found : NULL;
}

uint64_t server_random(void)
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

void server_hold(struct server *s, struct task *task, size_t bytes)
{
    s->open_bytes += bytes - task->held_bytes;
    if (task->ticket.client != NULL)
        task->ticket.client->open_bytes += bytes - task->held_bytes;
    task->held_bytes = bytes;
}

static int retry_after_ms(const struct server *s)
{
    double each = metrics_mean_seconds(&s->metrics);
    const struct scheduler_stats now = replicas_stats(&s->replicas);
    int at_once = replicas_max_seqs(&s->replicas);
    double ms = 1e3 * each * (1 + (double)now.n_waiting / (at_once > 0 ? at_once : 1));
    return ms < 50 ? 50 : ms > 30000 ? 30000 : (int)ms;
}

int server_busy(struct server *s, struct protocol_error *error, const char *format, ...)
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

int server_check_state(const struct server *s, struct protocol_error *error)
{
    if (s->state == SERVER_READY)
        return 0;
    (void)protocol_fail(error, PROTOCOL_UNAVAILABLE, "", "%s",
                        s->state == SERVER_LOADING ? "the model is being loaded" : "the server is ending");
    error->retry_after_ms = s->state == SERVER_LOADING ? 1000 : 0;
    return -1;
}

int server_check_bytes(struct server *s, struct task *task)
{
    const struct client *c = task->ticket.client;
    size_t own = task->held_bytes;
    if (s->open_bytes <= MAX_OPEN_BYTES && (c->open_bytes <= MAX_OPEN_BYTES / 2 || c->open_bytes == own))
        return 0;
    return server_busy(s, &task->error, "messages and results of %zu bytes are under way, %zu of them this client's",
                       s->open_bytes - own, c->open_bytes - own);
}

static int waiting_of(const struct client *c)
{
    return c->turn[TURN_TEXTS].n_sequences + c->turn[TURN_REPLICA].n_sequences;
}

/* The queue is full. The client with most sequences in it gives way to one that has fewer: its newest waiting requests
 * are refused, as if the others had come first. */
static bool make_room(struct server *s, const struct client *c, int n, int places)
{
    while (s->n_sequences > 0 && s->n_sequences + n > places) {
        int mine = waiting_of(c) + n;
        struct task *newest = turns_heaviest(&s->turns[TURN_REPLICA], mine);
        newest = newest != NULL ? newest : turns_heaviest(&s->turns[TURN_TEXTS], mine);
        if (newest == NULL || newest->ticket.client == c)
            return false;
        turns_remove(&s->turns[newest->ticket.waits_for], newest);
        (void)server_busy(s, &newest->error, "the queue is full, and this client has the most in it");
        server_refuse(s, newest);
    }
    return true;
}

static int check_limits(struct server *s, struct task *task, int n)
{
    const struct serve_options *o = s->setup.o;
    int places = (int)o->max_queue + replicas_max_seqs(&s->replicas), waiting = waiting_of(task->ticket.client);
    if (task->message.generate.priority < o->max_priority)
        return protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, "priority",
                             "%d, expected at least %lld (--max-priority; lower is more urgent)",
                             task->message.generate.priority, (long long)o->max_priority);
    if (o->max_queue_per_client > 0 && waiting > 0 && waiting + n > o->max_queue_per_client)
        return server_busy(s, &task->error,
                           "%d sequences of this client wait, and this request has %d (--max-queue-per-client)",
                           waiting, n);
    if (!make_room(s, task->ticket.client, n, places))
        return server_busy(s, &task->error,
                           "the queue is full: %d sequences run or wait, and this request has %d, expected at most %d "
                           "together: %d at once and %lld waiting (--max-queue)",
                           s->n_sequences, n, places, places - (int)o->max_queue, (long long)o->max_queue);
    return 0;
}

int server_name(struct server *s, struct task *task)
{
    if (task->ticket.named)
        return 0;
    if (task->request_id[0] == '\0')
        (void)snprintf(task->request_id, sizeof task->request_id, "r-%016llx", (unsigned long long)server_random());
    else if (server_find(s, task->asker, task->request_id) != NULL)
        return protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, "request_id", "\"%s\" is in use", task->request_id);
    if (tsearch(task, &s->names, compare_names) == NULL)
        return protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "out of host memory");
    task->ticket.named = true;
    return 0;
}

int server_admit(struct server *s, struct task *task)
{
    int n = sequences_of(&task->message.generate);
    if (server_check_state(s, &task->error) != 0 || check_limits(s, task, n) != 0 || server_name(s, task) != 0)
        return -1;
    task->ticket.n_sequences = n;
    s->n_sequences += n;
    return 0;
}

int server_reserve_results(struct server *s, struct task *task)
{
    size_t bytes = task->result_bytes;
    task->result_bytes = 0;
    if (s->open_bytes + bytes > MAX_OPEN_BYTES || task->ticket.client->open_bytes + bytes > MAX_OPEN_BYTES / 2)
        return server_busy(s, &task->error, "results of %zu bytes are possible, beside %zu bytes that are under way",
                           bytes, s->open_bytes);
    task->result_bytes = bytes;
    s->open_bytes += bytes;
    task->ticket.client->open_bytes += bytes;
    return 0;
}

void server_unlist(struct server *s, struct task *task)
{
    if (task->ticket.named)
        (void)tdelete(task, &s->names, compare_names);
    s->n_sequences -= task->ticket.n_sequences;
    server_hold(s, task, 0);
    s->open_bytes -= task->result_bytes;
    if (task->ticket.client != NULL)
        task->ticket.client->open_bytes -= task->result_bytes;
}
