/* coordinator/schedule/scheduler_order.c - the queues of waiting requests and the list of running ones; see
 * scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

#include <stdlib.h>

/* ---- queues ---- */

static struct sharer *find_sharer(struct sharer *first, uint64_t name)
{
    while (first != NULL && first->name != name)
        first = first->next;
    return first;
}

/* The client of this number, added if it is new; NULL: out of memory. */
static struct sharer *open_client(struct scheduler *s, uint64_t client, struct err *e)
{
    struct sharer *c = find_sharer(s->clients, client);
    if (c != NULL || (c = err_calloc(e, 1, sizeof *c, "a client")) == NULL)
        return c;
    *c = (struct sharer){.name = client, .next = s->clients};
    return s->clients = c;
}

static void unlink_sharer(struct sharer **first, struct sharer *one)
{
    while (*first != one)
        first = &(*first)->next;
    *first = one->next;
}

/* A client without parties is forgotten. */
static void leave_client(struct scheduler *s, struct sharer *c)
{
    if (c->party != NULL)
        return;
    unlink_sharer(&s->clients, c);
    free(c);
}

static int reserve_queue(struct scheduler *s, struct err *e)
{
    if (s->n_queues < s->queue_capacity)
        return 0;
    int n = 2 * s->n_queues + 16;
    struct party_queue **more = realloc(s->queue, (size_t)n * sizeof(struct party_queue *));
    if (more == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: queues of %d clients", n);
    s->queue = more;
    s->queue_capacity = n;
    return 0;
}

static struct party_queue *open_queue(struct scheduler *s, const struct request *r, struct err *e)
{
    struct sharer *c = reserve_queue(s, e) == 0 ? open_client(s, r->client, e) : NULL;
    struct party_queue *q = c != NULL ? err_calloc(e, 1, sizeof *q, "a queue") : NULL;
    if (c != NULL && q == NULL)
        leave_client(s, c);
    if (q == NULL)
        return NULL;
    q->as = (struct sharer){.name = r->party, .next = c->party, .client = c};
    c->party = &q->as;
    return s->queue[s->n_queues++] = q;
}

static void close_queue(struct scheduler *s, struct party_queue *q)
{
    int i = 0;
    while (s->queue[i] != q)
        i++;
    s->queue[i] = s->queue[--s->n_queues];
    unlink_sharer(&q->as.client->party, &q->as);
    leave_client(s, q->as.client);
    free(q->waiting);
    free(q);
}

int order_join(struct scheduler *s, struct request *r, struct err *e)
{
    struct party_queue *q = NULL;
    for (int i = 0; i < s->n_queues && q == NULL; i++)
        q = s->queue[i]->as.client->name == r->client && s->queue[i]->as.name == r->party ? s->queue[i] : NULL;
    if (q == NULL && (q = open_queue(s, r, e)) == NULL)
        return -1;
    if (q->n_requests == q->capacity) {
        int n = 2 * q->n_requests + 8;
        struct request **waiting = realloc(q->waiting, (size_t)n * sizeof(struct request *));
        if (waiting == NULL) {
            if (q->n_requests == 0)
                close_queue(s, q);
            return ERR(e, ERR_MEMORY, "out of host memory: a queue of %d requests", n);
        }
        q->waiting = waiting;
        q->capacity = n;
    }
    q->n_requests++;
    r->queue = q;
    return 0;
}

void order_leave(struct scheduler *s, struct request *r)
{
    if (--r->queue->n_requests == 0)
        close_queue(s, r->queue);
    r->queue = NULL;
}

void order_close(struct scheduler *s)
{
    while (s->n_queues > 0)
        close_queue(s, s->queue[0]);
    free(s->queue);
}

/* ---- waiting requests ---- */

bool order_before(const struct request *a, const struct request *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

static void heap_put(struct party_queue *q, int i, struct request *r)
{
    q->waiting[i] = r;
    r->heap_index = i;
}

static void heap_up(struct party_queue *q, int i, struct request *r)
{
    for (; i > 0 && order_before(r, q->waiting[(i - 1) / 2]); i = (i - 1) / 2)
        heap_put(q, i, q->waiting[(i - 1) / 2]);
    heap_put(q, i, r);
}

static void heap_down(struct party_queue *q, int i, struct request *r)
{
    for (int child = 2 * i + 1; child < q->n_waiting; i = child, child = 2 * i + 1) {
        if (child + 1 < q->n_waiting && order_before(q->waiting[child + 1], q->waiting[child]))
            child++;
        if (!order_before(q->waiting[child], r))
            break;
        heap_put(q, i, q->waiting[child]);
    }
    heap_put(q, i, r);
}

void order_wait(struct scheduler *s, struct request *r)
{
    r->state = REQUEST_WAITING;
    if (r->deadline > 0 && r->deadline < s->next_deadline)
        s->next_deadline = r->deadline;
    s->n_waiting++;
    heap_up(r->queue, r->queue->n_waiting++, r);
}

void order_leave_queue(struct scheduler *s, struct request *r)
{
    struct party_queue *q = r->queue;
    int i = r->heap_index;
    struct request *last = q->waiting[--q->n_waiting];
    s->n_waiting--;
    if (last != r) {
        heap_down(q, i, last);
        heap_up(q, last->heap_index, last);
    }
    if (s->blocked == r)
        s->blocked = NULL;
    r->state = REQUEST_IDLE;
}

/* a_rank, b_rank: numbers of sequences of the same owner before each: all first ones go before any second one. */
static bool has_turn_before(const struct request *a, int a_rank, const struct request *b, int b_rank)
{
    return a->priority != b->priority || a_rank == b_rank ? order_before(a, b) : a_rank < b_rank;
}

/* Lets the next request of each client wait there: that of the party whose turn it is. */
static void find_next_of_clients(const struct scheduler *s)
{
    for (struct sharer *c = s->clients; c != NULL; c = c->next)
        c->waits = NULL;
    for (int i = 0; i < s->n_queues; i++) {
        const struct party_queue *q = s->queue[i];
        struct request **next = &q->as.client->waits;
        if (q->n_waiting > 0 && !q->passed &&
            (*next == NULL || has_turn_before(q->waiting[0], q->as.n_running, *next, (*next)->queue->as.n_running)))
            *next = q->waiting[0];
    }
}

struct request *order_next(const struct scheduler *s)
{
    struct request *next = NULL;
    find_next_of_clients(s);
    for (const struct sharer *c = s->clients; c != NULL; c = c->next)
        if (c->waits != NULL &&
            (next == NULL || has_turn_before(c->waits, c->n_running, next, next->queue->as.client->n_running)))
            next = c->waits;
    return next;
}

/* ---- running requests ---- */

static bool has_turn_in_client(const struct request *a, const struct request *b)
{
    return has_turn_before(a, a->party_rank, b, b->party_rank);
}

static bool has_turn_in_all(const struct request *a, const struct request *b)
{
    return has_turn_before(a, a->rank, b, b->rank);
}

/* With a single party they are in this order already. */
static void sort_turns(struct scheduler *s, bool (*before)(const struct request *a, const struct request *b))
{
    for (int i = 1; i < s->n_turns; i++) {
        struct request *r = s->turn[i];
        int at = i;
        for (; at > 0 && before(r, s->turn[at - 1]); at--)
            s->turn[at] = s->turn[at - 1];
        s->turn[at] = r;
    }
}

/* Parties take turns within their client's, so the order within a client determines the ranks of its sequences. */
void order_turns(struct scheduler *s)
{
    for (int i = 0; i < s->n_queues; i++)
        s->queue[i]->as.n_running = s->queue[i]->as.client->n_running = 0;
    for (s->n_turns = 0; s->n_turns < s->n_running; s->n_turns++) {
        struct request *r = s->turn[s->n_turns] = s->running[s->n_turns];
        r->party_rank = r->queue->as.n_running++;
    }
    sort_turns(s, has_turn_in_client);
    for (int i = 0; i < s->n_turns; i++)
        s->turn[i]->rank = s->turn[i]->queue->as.client->n_running++;
    sort_turns(s, has_turn_in_all);
}

static void count_running(struct request *r, int n)
{
    r->queue->as.n_running += n;
    r->queue->as.client->n_running += n;
}

/* The position of r, present or future, among the running requests. Choices of one prompt have the same arrival. */
static int place_among_running(const struct scheduler *s, const struct request *r)
{
    int low = 0, high = s->n_running;
    while (low < high) {
        int middle = (low + high) / 2;
        if (order_before(s->running[middle], r))
            low = middle + 1;
        else
            high = middle;
    }
    while (low < s->n_running && s->running[low] != r && !order_before(r, s->running[low]))
        low++;
    return low;
}

void order_run(struct scheduler *s, struct request *r)
{
    int at = place_among_running(s, r);
    memmove(&s->running[at + 1], &s->running[at], (size_t)(s->n_running - at) * sizeof(struct request *));
    s->running[at] = r;
    s->n_running++;
    count_running(r, 1);
    r->n_begun_with = n_known(r);
    r->state = REQUEST_RUNNING;
}

void order_stop(struct scheduler *s, struct request *r)
{
    int at = place_among_running(s, r);
    growth_forget(s);
    s->n_running--;
    count_running(r, -1);
    memmove(&s->running[at], &s->running[at + 1], (size_t)(s->n_running - at) * sizeof(struct request *));
    drafter_end(s, r);
    s->free_slot[s->n_free_slots++] = r->slot;
    kv_give_back(s, r);
    r->slot = -1;
    r->n_fed = 0;
    r->state = REQUEST_IDLE;
}
