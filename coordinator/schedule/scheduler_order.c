/* coordinator/schedule/scheduler_order.c - the queues of waiting requests and the list of running ones; see
 * scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

#include <stdlib.h>

/* ---- queues ---- */

static struct client_queue *open_queue(struct scheduler *s, uint64_t client, struct err *e)
{
    if (s->n_queues == s->queue_capacity) {
        int n = 2 * s->n_queues + 16;
        struct client_queue **more = realloc(s->queue, (size_t)n * sizeof(struct client_queue *));
        if (more == NULL) {
            (void)ERR(e, ERR_MEMORY, "out of host memory: queues of %d clients", n);
            return NULL;
        }
        s->queue = more;
        s->queue_capacity = n;
    }
    struct client_queue *q = err_calloc(e, 1, sizeof *q, "a client's queue");
    if (q == NULL)
        return NULL;
    q->client = client;
    return s->queue[s->n_queues++] = q;
}

static void close_queue(struct scheduler *s, struct client_queue *q)
{
    int i = 0;
    while (s->queue[i] != q)
        i++;
    s->queue[i] = s->queue[--s->n_queues];
    free(q->waiting);
    free(q);
}

int order_join(struct scheduler *s, struct request *r, struct err *e)
{
    struct client_queue *q = NULL;
    for (int i = 0; i < s->n_queues && q == NULL; i++)
        q = s->queue[i]->client == r->client ? s->queue[i] : NULL;
    if (q == NULL && (q = open_queue(s, r->client, e)) == NULL)
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

static void heap_put(struct client_queue *q, int i, struct request *r)
{
    q->waiting[i] = r;
    r->heap_index = i;
}

static void heap_up(struct client_queue *q, int i, struct request *r)
{
    for (; i > 0 && order_before(r, q->waiting[(i - 1) / 2]); i = (i - 1) / 2)
        heap_put(q, i, q->waiting[(i - 1) / 2]);
    heap_put(q, i, r);
}

static void heap_down(struct client_queue *q, int i, struct request *r)
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
    struct client_queue *q = r->queue;
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

/* A request that would be its client's second sequence comes after all that would be first ones. */
static bool starts_before(const struct request *a, const struct request *b)
{
    if (a->priority != b->priority || a->queue->n_running == b->queue->n_running)
        return order_before(a, b);
    return a->queue->n_running < b->queue->n_running;
}

struct request *order_next(const struct scheduler *s)
{
    struct request *next = NULL;
    for (int i = 0; i < s->n_queues; i++) {
        const struct client_queue *q = s->queue[i];
        if (q->n_waiting > 0 && !q->passed && (next == NULL || starts_before(q->waiting[0], next)))
            next = q->waiting[0];
    }
    return next;
}

/* ---- running requests ---- */

static bool has_turn_before(const struct request *a, const struct request *b)
{
    if (a->priority != b->priority || a->rank == b->rank)
        return order_before(a, b);
    return a->rank < b->rank;
}

/* With a single client they are in this order already. */
void order_turns(struct scheduler *s)
{
    for (int i = 0; i < s->n_queues; i++)
        s->queue[i]->n_running = 0;
    for (s->n_turns = 0; s->n_turns < s->n_running; s->n_turns++) {
        struct request *r = s->running[s->n_turns];
        int at = s->n_turns;
        r->rank = r->queue->n_running++;
        for (; at > 0 && has_turn_before(r, s->turn[at - 1]); at--)
            s->turn[at] = s->turn[at - 1];
        s->turn[at] = r;
    }
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
    r->queue->n_running++;
    r->n_begun_with = n_known(r);
    r->state = REQUEST_RUNNING;
}

void order_stop(struct scheduler *s, struct request *r)
{
    int at = place_among_running(s, r);
    growth_forget(s);
    s->n_running--;
    r->queue->n_running--;
    memmove(&s->running[at], &s->running[at + 1], (size_t)(s->n_running - at) * sizeof(struct request *));
    drafter_end(s, r);
    s->free_slot[s->n_free_slots++] = r->slot;
    kv_give_back(s, r);
    r->slot = -1;
    r->n_fed = 0;
    r->state = REQUEST_IDLE;
}
