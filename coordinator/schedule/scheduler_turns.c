/* coordinator/schedule/scheduler_turns.c - divides slots, and the room in a step, among clients. See
 * scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

#define PARTS 4 /* the smallest part of a step's room is 1 / PARTS: with smaller ones no client would get far */
#define WORTH 8 /* a sequence grows by this part of itself before it has to give way again */

/* ---- slots ---- */

static bool has_grown(const struct request *r)
{
    return r->n_preempted == 0 || (int64_t)WORTH * (n_known(r) - r->n_begun_with) >= n_known(r);
}

/* Afterwards both clients run as many sequences as if r had come first, so r need not give way in turn. */
static bool may_give_way(const struct request *running, const struct request *r)
{
    return running->priority >= r->priority && running->rank > r->queue->n_running && has_grown(running);
}

static int n_held_alone(const struct scheduler *s, const struct request *r, int kind)
{
    int n = 0;
    for (int i = r->held[kind].begin; i < r->held[kind].end; i++)
        n += s->blocks[kind].block[r->held[kind].block[i]].n_holders == 1;
    return n;
}

/* Blocks of each kind that are missing for r to start; 0 or less: none. */
static void find_missing(struct scheduler *s, struct request *r, int *n)
{
    bool fits = scheduler_reserve(s, r);
    if (fits)
        kv_give_back(s, r);
    for (int kind = 0; kind < s->n_kinds; kind++)
        n[kind] = fits ? 0 : s->blocked_until[kind] - s->blocks[kind].n_free;
}

static bool any_missing(const struct scheduler *s, const int *n)
{
    for (int kind = 0; kind < s->n_kinds; kind++)
        if (n[kind] > 0)
            return true;
    return false;
}

/* The number of sequences from the end of the order that free a slot and the blocks if those that may give way do; 0:
 * not enough. */
static int n_to_ask(const struct scheduler *s, const struct request *r, int *missing)
{
    bool slot = s->n_free_slots > 0;
    for (int i = s->n_turns - 1; i >= 0; i--) {
        if (!may_give_way(s->turn[i], r))
            continue;
        slot = true;
        for (int kind = 0; kind < s->n_kinds; kind++)
            missing[kind] -= n_held_alone(s, s->turn[i], kind);
        if (slot && !any_missing(s, missing))
            return s->n_turns - i;
    }
    return 0;
}

static bool anybody_may(const struct scheduler *s, const struct request *r)
{
    for (int i = s->n_turns - 1; i >= 0; i--)
        if (may_give_way(s->turn[i], r))
            return true;
    return false;
}

void turns_give_way(struct scheduler *s)
{
    struct request *r = s->n_queues > 1 ? order_next(s) : NULL;
    if (r == NULL || r->n_in_flight > 0 || !anybody_may(s, r))
        return;
    int missing[KV_KINDS];
    s->favoured = r;
    find_missing(s, r, missing);
    if (s->n_free_slots > 0 && !any_missing(s, missing))
        return;
    int first = s->n_turns - n_to_ask(s, r, missing);
    for (int i = s->n_turns - 1; i >= first; i--)
        if (may_give_way(s->turn[i], r))
            scheduler_preempt(s, s->turn[i]);
    order_turns(s);
}

/* ---- room in a step ---- */

static void want(struct client_queue *q, const struct request *r, int n)
{
    q->want[ROOM_TOKENS] += n > 1 ? n : 0;
    if (wants_scores(r))
        q->want[ROOM_ROWS] += (int)r->prompt.n - 1 - r->n_scores_planned;
}

static void collect_wants(struct scheduler *s)
{
    for (int i = 0; i < s->n_queues; i++) {
        struct client_queue *q = s->queue[i];
        memset(q->want, 0, sizeof q->want);
        for (int k = 0; k < q->n_waiting && k < s->n_free_slots; k++)
            want(q, q->waiting[k], n_known(q->waiting[k]));
    }
    for (int i = 0; i < s->n_turns; i++)
        want(s->turn[i]->queue, s->turn[i], n_feedable(s->turn[i]));
}

/* The sum over all clients if none gets more than `most`. */
static int64_t sum_up_to(const struct scheduler *s, enum scheduler_room what, int most)
{
    int64_t sum = 0;
    for (int i = 0; i < s->n_queues; i++)
        sum += s->queue[i]->want[what] < most ? s->queue[i]->want[what] : most;
    return sum;
}

/* The largest part that all clients can get; the whole room if it suffices for all. */
static int part_of(const struct scheduler *s, enum scheduler_room what, int total)
{
    int low = (total + PARTS - 1) / PARTS, high = total;
    if (s->n_queues == 1 || sum_up_to(s, what, INT32_MAX) <= total)
        return total;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (sum_up_to(s, what, middle) <= total)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void turns_share(struct scheduler *s, int tokens, int rows)
{
    const int total[N_ROOMS] = {tokens, rows};
    if (s->n_queues > 1)
        collect_wants(s);
    for (int what = 0; what < N_ROOMS; what++) {
        int part = part_of(s, (enum scheduler_room)what, total[what]);
        for (int i = 0; i < s->n_queues; i++)
            s->queue[i]->left[what] = part;
    }
}
