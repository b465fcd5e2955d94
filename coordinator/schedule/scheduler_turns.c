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

/* Afterwards both clients, or parties of one client, run as many sequences as if r had come first, so r need not give
 * way in turn. */
static bool may_give_way(const struct request *running, const struct request *r)
{
    const struct sharer *party = &r->queue->as;
    bool has_more = running->queue->as.client == party->client ? running->party_rank > party->n_running
                                                               : running->rank > party->client->n_running;
    return running->priority >= r->priority && has_more && has_grown(running);
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

static void want(struct party_queue *q, const struct request *r, int n)
{
    for (struct sharer *one = &q->as; one != NULL; one = one->client) {
        one->want[ROOM_TOKENS] += n > 1 ? n : 0;
        if (wants_scores(r))
            one->want[ROOM_ROWS] += (int)r->prompt.n - 1 - r->n_scores_planned;
    }
}

static void collect_wants(struct scheduler *s)
{
    for (struct sharer *c = s->clients; c != NULL; c = c->next)
        memset(c->want, 0, sizeof c->want);
    for (int i = 0; i < s->n_queues; i++) {
        struct party_queue *q = s->queue[i];
        memset(q->as.want, 0, sizeof q->as.want);
        for (int k = 0; k < q->n_waiting && k < s->n_free_slots; k++)
            want(q, q->waiting[k], n_known(q->waiting[k]));
    }
    for (int i = 0; i < s->n_turns; i++)
        want(s->turn[i]->queue, s->turn[i], n_feedable(s->turn[i]));
}

/* The sum over all of them if none gets more than `most`. */
static int64_t sum_up_to(const struct sharer *first, enum scheduler_room what, int most)
{
    int64_t sum = 0;
    for (const struct sharer *one = first; one != NULL; one = one->next)
        sum += one->want[what] < most ? one->want[what] : most;
    return sum;
}

/* The largest part that all of them can get; the whole room if it suffices for all. */
static int part_of(const struct sharer *first, enum scheduler_room what, int total)
{
    int low = (total + PARTS - 1) / PARTS, high = total;
    if (first->next == NULL || sum_up_to(first, what, INT32_MAX) <= total)
        return total;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (sum_up_to(first, what, middle) <= total)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Parties divide their client's part. */
static void share_out(struct sharer *first, const int *total)
{
    int part[N_ROOMS] = {0};
    for (int what = 0; what < N_ROOMS && first != NULL; what++)
        part[what] = part_of(first, (enum scheduler_room)what, total[what]);
    for (struct sharer *one = first; one != NULL; one = one->next) {
        memcpy(one->left, part, sizeof one->left);
        share_out(one->party, part);
    }
}

void turns_share(struct scheduler *s, int tokens, int rows)
{
    const int total[N_ROOMS] = {tokens, rows};
    if (s->n_queues > 1)
        collect_wants(s);
    share_out(s->clients, total);
}

int turns_left(const struct request *r, enum scheduler_room what)
{
    const struct sharer *party = &r->queue->as;
    return party->left[what] < party->client->left[what] ? party->left[what] : party->client->left[what];
}

void turns_use(struct request *r, enum scheduler_room what, int n)
{
    r->queue->as.left[what] -= n;
    r->queue->as.client->left[what] -= n;
}
