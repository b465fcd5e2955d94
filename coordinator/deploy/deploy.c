/* coordinator/deploy/deploy.c - see deploy.h. */
#include "coordinator/deploy/deploy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *deploy_state_name(enum deploy_state state)
{
    static const char *const name[N_DEPLOY_STATES] = {"known", "waiting", "loading", "ready", "unloading", "failed"};
    return name[state];
}

int deploy_open(struct deploy *d, const struct deploy_setup *setup, struct err *e)
{
    memset(d, 0, sizeof *d);
    d->setup = *setup;
    d->loading = -1;
    d->model = err_calloc(e, (size_t)setup->n_models, sizeof *d->model, "table of models");
    d->slot_taken = err_calloc(e, (size_t)setup->n_slots, sizeof *d->slot_taken, "table of models");
    if (e->code != ERR_NONE)
        return -1;
    for (int i = 0; i < setup->n_models; i++)
        d->model[i].slot = -1;
    return 0;
}

void deploy_close(struct deploy *d)
{
    free(d->model);
    free(d->slot_taken);
    memset(d, 0, sizeof *d);
}

/* ---- requests that ask for, wait for and use a model ---- */

static void join_line(struct deploy *d, struct deployment *m, double now)
{
    if (!m->in_line) {
        m->in_line = true;
        m->order = d->n_asked++;
        m->waiting_since = now;
    }
    if (m->state == DEPLOY_KNOWN || m->state == DEPLOY_FAILED)
        m->state = DEPLOY_WAITING;
}

/* No request waits for it and no operator wants it: it leaves the queue. */
static void leave_line(struct deployment *m)
{
    if (m->n_waiters > 0 || m->wanted)
        return;
    m->in_line = false;
    if (m->state == DEPLOY_WAITING)
        m->state = DEPLOY_KNOWN;
}

bool deploy_failed_lately(const struct deploy *d, int i, double now)
{
    return d->model[i].state == DEPLOY_FAILED && now - d->model[i].failed_at < d->setup.hold;
}

bool deploy_admits(const struct deploy *d, int i)
{
    return d->model[i].state == DEPLOY_READY && !d->model[i].leaving;
}

enum deploy_answer deploy_ask(struct deploy *d, int i, double now)
{
    struct deployment *m = &d->model[i];
    if (deploy_failed_lately(d, i, now))
        return DEPLOY_REFUSE;
    if (deploy_admits(d, i)) {
        m->n_users++;
        m->last_used = now;
        return DEPLOY_ENTER;
    }
    m->n_waiters++;
    join_line(d, m, now);
    return DEPLOY_WAIT;
}

void deploy_enter(struct deploy *d, int i, double now)
{
    struct deployment *m = &d->model[i];
    m->n_waiters--;
    m->n_users++;
    m->last_used = now;
    leave_line(m);
}

void deploy_leave(struct deploy *d, int i)
{
    d->model[i].n_waiters--;
    leave_line(&d->model[i]);
}

void deploy_done(struct deploy *d, int i, double now)
{
    d->model[i].n_users--;
    d->model[i].last_used = now;
}

void deploy_want(struct deploy *d, int i, double now)
{
    struct deployment *m = &d->model[i];
    if (deploy_admits(d, i))
        return;
    m->wanted = true;
    join_line(d, m, now);
}

bool deploy_unload(struct deploy *d, int i)
{
    struct deployment *m = &d->model[i];
    if (m->state != DEPLOY_READY || m->pinned)
        return false;
    m->leaving = true;
    return true;
}

void deploy_pin(struct deploy *d, int i, bool pinned)
{
    d->model[i].pinned = pinned;
    d->model[i].leaving = d->model[i].leaving && !pinned;
}

/* ---- decisions ---- */

int64_t deploy_room(const struct deploy *d, int i)
{
    int64_t room = d->setup.memory;
    for (int k = 0; k < d->setup.n_models; k++)
        if (k != i && d->model[k].pinned && d->model[k].slot >= 0)
            room -= d->model[k].bytes;
    return room;
}

int deploy_room_units(const struct deploy *d, int i)
{
    int room = d->setup.units;
    for (int k = 0; k < d->setup.n_models; k++)
        if (k != i && d->model[k].pinned && d->model[k].slot >= 0)
            room -= d->model[k].units;
    return room;
}

static bool is_idle(const struct deployment *m)
{
    return m->state == DEPLOY_READY && m->n_users == 0 && (m->n_waiters == 0 || m->leaving);
}

static bool may_go(const struct deployment *m)
{
    return is_idle(m) && !m->pinned;
}

/* The time until which it stays, whatever waits. */
static double settled_at(const struct deploy *d, const struct deployment *m)
{
    return m->loaded_at + fmin(d->setup.residence * (m->loaded_at - m->reading_since), d->setup.patience);
}

/* The total that several models hold. */
struct holdings {
    int64_t bytes;
    int units, n;
};

static void add_holdings(struct holdings *h, const struct deployment *m)
{
    h->bytes += m->bytes;
    h->units += m->units;
    h->n++;
}

/* Is there room for m once these have been freed? */
static bool fits_after(const struct deploy *d, const struct deployment *m, const struct holdings *freed)
{
    return d->used - freed->bytes + m->bytes <= d->setup.memory &&
           d->used_units - freed->units + m->units <= d->setup.units && d->n_resident - freed->n < d->setup.n_slots;
}

/* Is some model being unloaded? Room is checked again when it is gone. */
static bool is_unloading(const struct deploy *d)
{
    for (int i = 0; i < d->setup.n_models; i++)
        if (d->model[i].state == DEPLOY_UNLOADING)
            return true;
    return false;
}

/* The next victim for `coming`: the least recently used idle model, if all idle ones together make enough room, and
 * once its residence has passed. -1: none. */
static int choose_victim(const struct deploy *d, const struct deployment *coming, double now)
{
    int oldest = -1;
    struct holdings idle = {0};
    for (int i = 0; i < d->setup.n_models; i++) {
        const struct deployment *m = &d->model[i];
        if (!may_go(m))
            continue;
        add_holdings(&idle, m);
        if (oldest < 0 || m->last_used < d->model[oldest].last_used)
            oldest = i;
    }
    bool goes = oldest >= 0 && now >= settled_at(d, &d->model[oldest]) && fits_after(d, coming, &idle);
    return goes ? oldest : -1;
}

/* The busy model that has been loaded longest; it goes when it is idle. -1: all loaded models are pinned or within
 * their residence. */
static int choose_yielding(const struct deploy *d, double now)
{
    int oldest = -1;
    for (int i = 0; i < d->setup.n_models; i++) {
        const struct deployment *m = &d->model[i];
        if (m->state == DEPLOY_READY && !m->pinned && !m->leaving && now >= settled_at(d, m) &&
            (oldest < 0 || m->loaded_at < d->model[oldest].loaded_at))
            oldest = i;
    }
    return oldest;
}

/* Makes busy models yield, one after the other, until those that leave make enough room. */
static void ask_to_yield(struct deploy *d, const struct deployment *coming, double now)
{
    struct holdings going = {0};
    for (int i = 0; i < d->setup.n_models; i++)
        if ((d->model[i].state == DEPLOY_READY && d->model[i].leaving) || may_go(&d->model[i]))
            add_holdings(&going, &d->model[i]);
    for (int i; !fits_after(d, coming, &going) && (i = choose_yielding(d, now)) >= 0;) {
        if (!may_go(&d->model[i]))
            add_holdings(&going, &d->model[i]);
        d->model[i].leaving = true;
    }
}

/* Can it never fit while the pinned models stay? */
static bool is_too_large(const struct deploy *d, int i)
{
    int n_pinned = 0;
    for (int k = 0; k < d->setup.n_models; k++)
        n_pinned += k != i && d->model[k].pinned && d->model[k].slot >= 0;
    return d->model[i].bytes > deploy_room(d, i) || d->model[i].units > deploy_room_units(d, i) ||
           n_pinned >= d->setup.n_slots;
}

static bool awaits_room(const struct deployment *m)
{
    return m->slot < 0 && (m->state == DEPLOY_WAITING || m->state == DEPLOY_LOADING);
}

/* The idle model after this one in the order of last use; NULL for the first, and after the last. */
static const struct deployment *next_idle(const struct deploy *d, const struct deployment *after)
{
    const struct deployment *next = NULL;
    for (int i = 0; i < d->setup.n_models; i++) {
        const struct deployment *m = &d->model[i];
        bool behind =
            after == NULL || m->last_used > after->last_used || (m->last_used >= after->last_used && m > after);
        if (may_go(m) && behind && (next == NULL || m->last_used < next->last_used))
            next = m;
    }
    return next;
}

enum deploy_ease deploy_ease(const struct deploy *d, int i, double *cost)
{
    const struct deployment *m = &d->model[i], *last = NULL;
    struct holdings freed = {0};
    *cost = (double)d->used;
    if (is_too_large(d, i))
        return DEPLOY_NEVER;
    for (int k = 0; k < d->setup.n_models; k++)
        if (k != i && awaits_room(&d->model[k])) {
            freed.bytes -= d->model[k].bytes;
            freed.units -= d->model[k].units;
            freed.n--;
        }
    for (; !fits_after(d, m, &freed); *cost = last->last_used) {
        last = next_idle(d, last);
        if (last == NULL)
            return DEPLOY_BUSY;
        add_holdings(&freed, last);
    }
    return last == NULL ? DEPLOY_FREE : DEPLOY_EVICTS;
}

bool deploy_fits(const struct deploy *d, int i)
{
    return fits_after(d, &d->model[i], &(struct holdings){0});
}

int deploy_line(const struct deploy *d)
{
    int n = 0;
    for (int i = 0; i < d->setup.n_models; i++)
        n += d->model[i].state == DEPLOY_WAITING || d->model[i].state == DEPLOY_LOADING;
    return n;
}

static struct deploy_decision unload(struct deploy *d, int i)
{
    struct deployment *m = &d->model[i];
    m->state = DEPLOY_UNLOADING;
    m->leaving = false;
    d->n_unloads++;
    return (struct deploy_decision){DEPLOY_UNLOAD, i};
}

/* A model that is to be unloaded and can be: it yields, an operator requested it, or it has been idle for long. */
static int find_departure(const struct deploy *d, double now)
{
    for (int i = 0; i < d->setup.n_models; i++) {
        const struct deployment *m = &d->model[i];
        bool old = d->setup.keep_alive > 0 && now - m->last_used >= d->setup.keep_alive;
        if (may_go(m) && (m->leaving || old))
            return i;
    }
    return -1;
}

static void take_slot(struct deploy *d, struct deployment *m)
{
    m->slot = 0;
    while (d->slot_taken[m->slot])
        m->slot++;
    d->slot_taken[m->slot] = true;
    d->n_resident++;
    d->used += m->bytes;
    d->used_units += m->units;
}

static void give_slot_back(struct deploy *d, struct deployment *m)
{
    if (m->slot < 0)
        return;
    d->slot_taken[m->slot] = false;
    d->n_resident--;
    d->used -= m->bytes;
    d->used_units -= m->units;
    m->slot = -1;
}

/* Resets a load; waiters keep their place. */
static void put_down(struct deploy *d, int i, enum deploy_state state)
{
    struct deployment *m = &d->model[i];
    give_slot_back(d, m);
    d->loading = d->loading == i ? -1 : d->loading;
    m->leaving = false;
    m->state = m->in_line && state == DEPLOY_KNOWN ? DEPLOY_WAITING : state;
}

/* Decides on the sized model: is there room, or can there ever be? */
static struct deploy_decision make_room(struct deploy *d, int i, double now)
{
    struct deployment *m = &d->model[i];
    if (m->n_waiters == 0 && !m->wanted) {
        put_down(d, i, DEPLOY_KNOWN);
        return (struct deploy_decision){DEPLOY_ABANDON, i};
    }
    if (is_too_large(d, i)) {
        m->wanted = false;
        put_down(d, i, DEPLOY_FAILED);
        m->failed_at = now;
        leave_line(m);
        return (struct deploy_decision){DEPLOY_REFUSED, i};
    }
    if (fits_after(d, m, &(struct holdings){0})) {
        m->phase = PHASE_READ;
        m->reading_since = now;
        take_slot(d, m);
        d->n_loads++;
        return (struct deploy_decision){DEPLOY_LOAD, i};
    }
    int victim = is_unloading(d) ? -1 : choose_victim(d, m, now);
    if (victim >= 0)
        return unload(d, victim);
    if (now - m->waiting_since >= d->setup.patience)
        ask_to_yield(d, m, now);
    int gone = find_departure(d, now);
    return gone >= 0 ? unload(d, gone) : (struct deploy_decision){DEPLOY_NOTHING, -1};
}

static int first_in_line(const struct deploy *d)
{
    int first = -1;
    for (int i = 0; i < d->setup.n_models; i++)
        if (d->model[i].state == DEPLOY_WAITING && (first < 0 || d->model[i].order < d->model[first].order))
            first = i;
    return first;
}

struct deploy_decision deploy_next(struct deploy *d, double now)
{
    int gone = find_departure(d, now);
    d->decided = now;
    if (gone >= 0)
        return unload(d, gone);
    if (d->loading >= 0 && d->model[d->loading].phase == PHASE_ROOM)
        return make_room(d, d->loading, now);
    int first = d->loading < 0 ? first_in_line(d) : -1;
    if (first < 0)
        return (struct deploy_decision){DEPLOY_NOTHING, -1};
    d->loading = first;
    d->model[first].state = DEPLOY_LOADING;
    d->model[first].phase = PHASE_OPEN;
    return (struct deploy_decision){DEPLOY_OPEN, first};
}

/* ---- reports ---- */

void deploy_sized(struct deploy *d, int i, int64_t bytes, int units)
{
    d->model[i].bytes = bytes;
    d->model[i].units = units;
    d->model[i].phase = PHASE_ROOM;
}

void deploy_loaded(struct deploy *d, int i, double now)
{
    struct deployment *m = &d->model[i];
    m->state = DEPLOY_READY;
    m->wanted = false;
    m->loaded_at = m->last_used = now;
    d->loading = -1;
    leave_line(m);
}

void deploy_failed(struct deploy *d, int i, double now)
{
    struct deployment *m = &d->model[i];
    m->wanted = false;
    put_down(d, i, DEPLOY_FAILED);
    m->failed_at = now;
    leave_line(m);
}

void deploy_unloaded(struct deploy *d, int i)
{
    put_down(d, i, DEPLOY_KNOWN);
}

/* ---- several tables ---- */

void deploy_hand_over(struct deploy *from, struct deploy *to, int i, double now)
{
    struct deployment *m = &from->model[i], *other = &to->model[i];
    other->n_waiters += m->n_waiters;
    other->wanted = other->wanted || m->wanted;
    join_line(to, other, now);
    other->waiting_since = fmin(other->waiting_since, m->waiting_since);
    m->n_waiters = 0;
    m->wanted = false;
    leave_line(m);
    put_down(from, i, DEPLOY_KNOWN);
}

void deploy_forgo(struct deploy *d, int i)
{
    struct deployment *m = &d->model[i];
    if (m->n_waiters > 0)
        return;
    m->wanted = false;
    leave_line(m);
    m->leaving = m->leaving || (m->state == DEPLOY_LOADING && m->phase == PHASE_READ && !m->pinned);
}

/* The earlier of two times, of which the second counts only if it was not there yet at the last decision. */
static double earlier(const struct deploy *d, double due, double at)
{
    return at > d->decided ? fmin(due, at) : due;
}

double deploy_due(const struct deploy *d)
{
    double due = INFINITY;
    for (int i = 0; i < d->setup.n_models && d->setup.keep_alive > 0; i++)
        if (may_go(&d->model[i]))
            due = earlier(d, due, d->model[i].last_used + d->setup.keep_alive);
    if (d->loading < 0 || d->model[d->loading].phase != PHASE_ROOM)
        return due;
    due = earlier(d, due, d->model[d->loading].waiting_since + d->setup.patience);
    for (int i = 0; i < d->setup.n_models; i++)
        if (d->model[i].state == DEPLOY_READY && !d->model[i].pinned)
            due = earlier(d, due, settled_at(d, &d->model[i]));
    return due;
}
