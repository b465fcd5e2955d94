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

/* bytes: more than before; fewer as the two's complement. */
static void count_bytes(struct server *s, struct task *task, size_t bytes)
{
    s->open_bytes += bytes;
    if (task->ticket.client == NULL)
        return;
    task->ticket.client->open_bytes += bytes;
    task->ticket.party->open_bytes += bytes;
}

void server_hold(struct server *s, struct task *task, size_t bytes)
{
    count_bytes(s, task, bytes - task->held_bytes);
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

/* Is there memory for the task, whose client and party have `more` then? A party with a name may have half of what its
 * client may, but its only task may have all of that. own: the client's only task, if it has these bytes, is taken
 * whatever its size. */
static bool has_memory(const struct server *s, const struct task *task, size_t own, size_t more)
{
    const struct client *c = task->ticket.client;
    const struct party *p = task->ticket.party;
    bool client_has = c->open_bytes + more <= MAX_OPEN_BYTES / 2 || c->open_bytes == own;
    bool party_has = p->number == 0 || p->open_bytes + more <= MAX_OPEN_BYTES / 4 || p->n_tasks == 1;
    return s->open_bytes + more <= MAX_OPEN_BYTES && client_has && party_has;
}

int server_check_bytes(struct server *s, struct task *task)
{
    size_t own = task->held_bytes;
    if (has_memory(s, task, own, 0))
        return 0;
    return server_busy(s, &task->error,
                       "messages and results of %zu bytes are under way, %zu of them this client's, of which %zu are "
                       "this party's",
                       s->open_bytes - own, task->ticket.client->open_bytes - own,
                       task->ticket.party->open_bytes - own);
}

/* turn: a client's places, or a party's */
static int waiting_of(const struct turn *turn)
{
    return turn[TURN_TEXTS].n_sequences + turn[TURN_REPLICA].n_sequences;
}

/* The newest waiting request of the client that has most sequences in the queue, if it has more than this one would
 * have with n more; else that of the client's own party that has more than this task's. */
static struct task *find_heavier(const struct server *s, const struct task *task, int n)
{
    static const enum turn_kind kinds[] = {TURN_REPLICA, TURN_TEXTS};
    const struct client *c = task->ticket.client;
    struct task *newest = NULL;
    for (int i = 0; i < 2 && newest == NULL; i++)
        newest = turns_heaviest(&s->turns[kinds[i]], waiting_of(c->turn) + n);
    for (int i = 0; i < 2 && newest == NULL; i++)
        newest = turns_heaviest_party(&s->turns[kinds[i]], c, waiting_of(task->ticket.party->turn) + n);
    return newest;
}

/* The queue is full. The client, or the party of a client, with most sequences in it gives way to one that has fewer:
 * its newest waiting requests are refused, as if the others had come first. */
static bool make_room(struct server *s, const struct task *task, int n, int places)
{
    while (s->n_sequences > 0 && s->n_sequences + n > places) {
        struct task *newest = find_heavier(s, task, n);
        if (newest == NULL)
            return false;
        turns_remove(&s->turns[newest->ticket.waits_for], newest);
        (void)server_busy(s, &newest->error, "the queue is full, and this client or party has the most in it");
        server_refuse(s, newest);
    }
    return true;
}

/* A limit of 0 is none; it does not bind the only request. */
static int check_queue(struct server *s, struct task *task, int n, int waiting, int64_t limit, const char *whose)
{
    if (limit <= 0 || waiting == 0 || waiting + n <= limit)
        return 0;
    return server_busy(s, &task->error, "%d sequences of this %s wait, and this request has %d (--max-queue-per-%s)",
                       waiting, whose, n, whose);
}

static int check_limits(struct server *s, struct task *task, int n)
{
    const struct serve_options *o = s->setup.o;
    int places = (int)o->max_queue + replicas_max_seqs(&s->replicas);
    int of_client = waiting_of(task->ticket.client->turn), of_party = waiting_of(task->ticket.party->turn);
    if (task->message.generate.priority < o->max_priority)
        return protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, "priority",
                             "%d, expected at least %lld (--max-priority; lower is more urgent)",
                             task->message.generate.priority, (long long)o->max_priority);
    if (check_queue(s, task, n, of_client, o->max_queue_per_client, "client") != 0 ||
        check_queue(s, task, n, of_party, o->max_queue_per_party, "party") != 0)
        return -1;
    if (!make_room(s, task, n, places))
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
    if (!has_memory(s, task, SIZE_MAX, bytes))
        return server_busy(s, &task->error, "results of %zu bytes are possible, beside %zu bytes that are under way",
                           bytes, s->open_bytes);
    task->result_bytes = bytes;
    count_bytes(s, task, bytes);
    return 0;
}

void server_unlist(struct server *s, struct task *task)
{
    if (task->ticket.named)
        (void)tdelete(task, &s->names, compare_names);
    s->n_sequences -= task->ticket.n_sequences;
    server_hold(s, task, 0);
    count_bytes(s, task, 0 - task->result_bytes);
}
