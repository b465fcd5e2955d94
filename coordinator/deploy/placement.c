/* coordinator/deploy/placement.c - see placement.h. */
#include "coordinator/deploy/placement.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int placement_open(struct placement *p, const struct deploy_setup *setup, int n_sets, const int *replicas,
                   struct err *e)
{
    *p = (struct placement){.n_models = setup->n_models, .replicas = replicas};
    p->set = err_calloc(e, (size_t)n_sets, sizeof *p->set, "tables of models");
    for (; p->set != NULL && p->n_sets < n_sets; p->n_sets++)
        if (deploy_open(&p->set[p->n_sets], setup, e) != 0) {
            deploy_close(&p->set[p->n_sets]);
            return -1;
        }
    return e->code == ERR_NONE ? 0 : -1;
}

void placement_close(struct placement *p)
{
    for (int k = 0; k < p->n_sets; k++)
        deploy_close(&p->set[k]);
    free(p->set);
    memset(p, 0, sizeof *p);
}

static struct deployment *at(const struct placement *p, int i, int set)
{
    return &p->set[set].model[i];
}

/* ---- the choice of a set ---- */

/* Whether the set has the model, or will have it, and keeps it. */
static bool holds(const struct placement *p, int i, int set)
{
    const struct deployment *m = at(p, i, set);
    return m->in_line || (!m->leaving && (m->state == DEPLOY_READY || m->state == DEPLOY_LOADING));
}

/* The set that admits and has the fewest users; -1: none admits. */
static int least_used(const struct placement *p, int i)
{
    int best = -1;
    for (int k = 0; k < p->n_sets; k++)
        if (deploy_admits(&p->set[k], i) && (best < 0 || at(p, i, k)->n_users < at(p, i, best)->n_users))
            best = k;
    return best;
}

/* The set where its waiters are; -1: none. */
static int waiting_set(const struct placement *p, int i)
{
    for (int k = 0; k < p->n_sets; k++)
        if (at(p, i, k)->n_waiters > 0)
            return k;
    return -1;
}

/* How well a set suits a model. */
struct merit {
    enum deploy_ease ease;
    int line;
    double cost;
};

static bool is_better(const struct merit *a, const struct merit *b)
{
    if (a->ease != b->ease)
        return a->ease < b->ease;
    return a->line != b->line ? a->line < b->line : a->cost < b->cost;
}

/* The best of the sets that neither hold it nor have just failed to load it, if the effort there is at most this; -1:
 * none. */
static int choose_set(const struct placement *p, int i, enum deploy_ease worst, double now)
{
    int best = -1;
    struct merit merit = {0};
    for (int k = 0; k < p->n_sets; k++) {
        struct merit mine = {.line = deploy_line(&p->set[k])};
        if (holds(p, i, k) || deploy_failed_lately(&p->set[k], i, now))
            continue;
        mine.ease = deploy_ease(&p->set[k], i, &mine.cost);
        if (mine.ease > worst || (best >= 0 && !is_better(&mine, &merit)))
            continue;
        best = k;
        merit = mine;
    }
    return best;
}

static int n_holding(const struct placement *p, int i)
{
    int n = 0;
    for (int k = 0; k < p->n_sets; k++)
        n += holds(p, i, k);
    return n;
}

static int n_replicas(const struct placement *p, int i)
{
    return p->replicas != NULL ? p->replicas[i] : 1;
}

/* The set whose load of it is most advanced; -1: none. */
static int loading_set(const struct placement *p, int i)
{
    int best = -1;
    for (int k = 0; k < p->n_sets; k++)
        if (holds(p, i, k) && !deploy_admits(&p->set[k], i) &&
            (best < 0 || (at(p, i, k)->state == DEPLOY_LOADING && at(p, i, best)->state != DEPLOY_LOADING)))
            best = k;
    return best;
}

static int failed_set(const struct placement *p, int i, double now)
{
    for (int k = 0; k < p->n_sets; k++)
        if (deploy_failed_lately(&p->set[k], i, now))
            return k;
    return -1;
}

/* The set where a new waiter waits if no set has the model. */
static int home(const struct placement *p, int i, double now)
{
    int set = waiting_set(p, i);
    set = set >= 0 ? set : loading_set(p, i);
    set = set >= 0 ? set : failed_set(p, i, now);
    set = set >= 0 ? set : choose_set(p, i, DEPLOY_NEVER, now);
    return set >= 0 ? set : 0;
}

/* ---- requests that ask, wait, use ---- */

/* All replicas are in use: loads one more if that evicts only idle models. */
static void spread(struct placement *p, int i, double now)
{
    int set = n_holding(p, i) < n_replicas(p, i) ? choose_set(p, i, DEPLOY_EVICTS, now) : -1;
    if (set >= 0)
        deploy_want(&p->set[set], i, now);
}

enum deploy_answer placement_ask(struct placement *p, int i, double now, int *set)
{
    *set = least_used(p, i);
    if (*set < 0)
        *set = home(p, i, now);
    else if (at(p, i, *set)->n_users > 0)
        spread(p, i, now);
    return deploy_ask(&p->set[*set], i, now);
}

bool placement_admits(const struct placement *p, int i)
{
    return least_used(p, i) >= 0;
}

int placement_enter(struct placement *p, int i, double now)
{
    int from = waiting_set(p, i), to = least_used(p, i);
    if (at(p, i, to)->n_users > 0)
        spread(p, i, now);
    if (from == to) {
        deploy_enter(&p->set[to], i, now);
        return to;
    }
    deploy_leave(&p->set[from], i);
    (void)deploy_ask(&p->set[to], i, now);
    return to;
}

void placement_leave(struct placement *p, int i)
{
    deploy_leave(&p->set[waiting_set(p, i)], i);
}

void placement_done(struct placement *p, int i, int set, double now)
{
    deploy_done(&p->set[set], i, now);
}

void placement_move(struct placement *p, int i, int from, int to, double now)
{
    (void)deploy_ask(&p->set[to], i, now);
    deploy_done(&p->set[from], i, now);
}

void placement_want(struct placement *p, int i, double now)
{
    if (n_holding(p, i) == 0) /* even if it has just failed or never fits, in which case it is refused */
        deploy_want(&p->set[home(p, i, now)], i, now);
    for (int set; n_holding(p, i) < n_replicas(p, i) && (set = choose_set(p, i, DEPLOY_BUSY, now)) >= 0;)
        deploy_want(&p->set[set], i, now);
}

bool placement_unload(struct placement *p, int i)
{
    bool any = false;
    for (int k = 0; k < p->n_sets; k++)
        any = deploy_unload(&p->set[k], i) || any;
    for (int k = 0; k < p->n_sets && any; k++)
        if (at(p, i, k)->state != DEPLOY_READY)
            deploy_forgo(&p->set[k], i);
    return any;
}

void placement_pin(struct placement *p, int i, bool pinned)
{
    for (int k = 0; k < p->n_sets; k++)
        deploy_pin(&p->set[k], i, pinned);
}

/* ---- decisions ---- */

/* Moves the model that has been sized in this set, but has no room there, to a set that has room. Returns the model;
 * -1: none was moved. */
static int resettle(struct placement *p, int set, double now)
{
    struct deploy *d = &p->set[set];
    double cost;
    int i = d->loading;
    if (p->n_sets == 1 || i < 0 || d->model[i].phase != PHASE_ROOM || deploy_fits(d, i) ||
        (d->model[i].n_waiters == 0 && !d->model[i].wanted))
        return -1;
    bool never = deploy_ease(d, i, &cost) == DEPLOY_NEVER;
    int to = choose_set(p, i, never ? DEPLOY_BUSY : DEPLOY_FREE, now);
    if (to < 0)
        return -1;
    deploy_hand_over(d, &p->set[to], i, now);
    return i;
}

/* Does model i wait in this set's queue while set `to` has room for it? */
static bool may_come(const struct placement *p, int i, int set, int to, double now)
{
    double cost;
    return at(p, i, set)->state == DEPLOY_WAITING && !holds(p, i, to) && !deploy_failed_lately(&p->set[to], i, now) &&
           deploy_ease(&p->set[to], i, &cost) == DEPLOY_FREE;
}

/* Among the models that wait behind a set's load and could move, the one that has waited longest; -1: none. */
static int first_to_come(const struct placement *p, int set, int to, double now)
{
    int first = -1;
    for (int i = 0; i < p->n_models && p->set[set].loading >= 0; i++)
        if (may_come(p, i, set, to, now) &&
            (first < 0 || at(p, i, set)->waiting_since < at(p, first, set)->waiting_since))
            first = i;
    return first;
}

/* A set without a load takes models from the queues of others if it has room for them. */
static void relieve(struct placement *p, int set, double now)
{
    int model = -1, from = -1;
    if (p->n_sets == 1 || deploy_line(&p->set[set]) > 0)
        return;
    for (int k = 0; k < p->n_sets; k++) {
        int i = k != set ? first_to_come(p, k, set, now) : -1;
        if (i < 0 || (model >= 0 && at(p, i, k)->waiting_since >= at(p, model, from)->waiting_since))
            continue;
        model = i;
        from = k;
    }
    if (model >= 0)
        deploy_hand_over(&p->set[from], &p->set[set], model, now);
}

struct placement_decision placement_next(struct placement *p, double now)
{
    for (int n = 0; n < p->n_sets; n++) {
        int set = (p->turn + n) % p->n_sets, moved = resettle(p, set, now);
        if (moved >= 0)
            return (struct placement_decision){DEPLOY_ABANDON, moved, set};
        relieve(p, set, now);
        const struct deploy_decision it = deploy_next(&p->set[set], now);
        if (it.act == DEPLOY_NOTHING)
            continue;
        p->turn = (set + 1) % p->n_sets;
        return (struct placement_decision){it.act, it.model, set};
    }
    return (struct placement_decision){DEPLOY_NOTHING, -1, -1};
}

/* Sets have the same numbers of ranks, so it is as large in all of them. */
void placement_sized(struct placement *p, int i, int set, int64_t bytes, int units)
{
    deploy_sized(&p->set[set], i, bytes, units);
    for (int k = 0; k < p->n_sets; k++)
        if (at(p, i, k)->slot < 0) {
            at(p, i, k)->bytes = bytes;
            at(p, i, k)->units = units;
        }
}

void placement_loaded(struct placement *p, int i, int set, double now)
{
    deploy_loaded(&p->set[set], i, now);
}

void placement_failed(struct placement *p, int i, int set, double now)
{
    deploy_failed(&p->set[set], i, now);
}

void placement_unloaded(struct placement *p, int i, int set)
{
    deploy_unloaded(&p->set[set], i);
}

double placement_due(const struct placement *p)
{
    double due = INFINITY;
    for (int k = 0; k < p->n_sets; k++)
        due = fmin(due, deploy_due(&p->set[k]));
    return due;
}

/* ---- queries ---- */

bool placement_waits(const struct placement *p, int i, int set)
{
    return at(p, i, set)->n_waiters > 0;
}

bool placement_goes(const struct placement *p, int i)
{
    for (int k = 0; k < p->n_sets; k++)
        if (at(p, i, k)->state == DEPLOY_UNLOADING || at(p, i, k)->leaving)
            return true;
    return false;
}

static int rank_of(enum deploy_state state)
{
    static const int order[N_DEPLOY_STATES] = {[DEPLOY_KNOWN] = 0,   [DEPLOY_FAILED] = 1,    [DEPLOY_WAITING] = 2,
                                               [DEPLOY_LOADING] = 3, [DEPLOY_UNLOADING] = 4, [DEPLOY_READY] = 5};
    return order[state];
}

struct placed placement_look(const struct placement *p, int i)
{
    struct placed sum = {.state = DEPLOY_KNOWN};
    for (int k = 0; k < p->n_sets; k++) {
        const struct deployment *m = at(p, i, k);
        if (rank_of(m->state) > rank_of(sum.state))
            sum.state = m->state;
        sum.bytes = m->bytes > sum.bytes ? m->bytes : sum.bytes;
        sum.n_ready += m->state == DEPLOY_READY;
        sum.n_held += m->slot >= 0;
        sum.pinned = sum.pinned || m->pinned;
        sum.n_users += m->n_users;
        sum.n_waiters += m->n_waiters;
        sum.last_used = fmax(sum.last_used, m->last_used);
    }
    return sum;
}

int64_t placement_used(const struct placement *p)
{
    int64_t most = 0;
    for (int k = 0; k < p->n_sets; k++)
        most = p->set[k].used > most ? p->set[k].used : most;
    return most;
}
