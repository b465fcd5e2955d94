/* coordinator/schedule/scheduler_order.c - the line of those that wait and the list of those that run; see scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

bool order_before(const struct request *a, const struct request *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

static void heap_put(struct scheduler *s, int i, struct request *r)
{
    s->waiting[i] = r;
    r->place = i;
}

static void heap_up(struct scheduler *s, int i, struct request *r)
{
    for (; i > 0 && order_before(r, s->waiting[(i - 1) / 2]); i = (i - 1) / 2)
        heap_put(s, i, s->waiting[(i - 1) / 2]);
    heap_put(s, i, r);
}

static void heap_down(struct scheduler *s, int i, struct request *r)
{
    for (int child = 2 * i + 1; child < s->n_waiting; i = child, child = 2 * i + 1) {
        if (child + 1 < s->n_waiting && order_before(s->waiting[child + 1], s->waiting[child]))
            child++;
        if (!order_before(s->waiting[child], r))
            break;
        heap_put(s, i, s->waiting[child]);
    }
    heap_put(s, i, r);
}

void order_wait(struct scheduler *s, struct request *r)
{
    r->state = REQUEST_WAITING;
    if (r->deadline > 0 && r->deadline < s->next_deadline)
        s->next_deadline = r->deadline;
    heap_up(s, s->n_waiting++, r);
}

void order_leave_line(struct scheduler *s, struct request *r)
{
    int i = r->place;
    struct request *last = s->waiting[--s->n_waiting];
    if (last != r) {
        heap_down(s, i, last);
        heap_up(s, last->place, last);
    }
    if (s->blocked == r)
        s->blocked = NULL;
    r->state = REQUEST_IDLE;
}

/* The position of r, present or future, among the running requests. Requests of one group have the same arrival. */
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
    r->state = REQUEST_RUNNING;
}

void order_stop(struct scheduler *s, struct request *r)
{
    int at = place_among_running(s, r);
    s->n_running--;
    memmove(&s->running[at], &s->running[at + 1], (size_t)(s->n_running - at) * sizeof(struct request *));
    s->free_slot[s->n_free_slots++] = r->slot;
    while (r->n_blocks > 0)
        blocks_give_back(&s->blocks, r->block[--r->n_blocks]);
    r->slot = -1;
    r->n_fed = 0;
    r->state = REQUEST_IDLE;
}
