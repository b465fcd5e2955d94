/* tests/unit/test_placement.c - the choice of a set of ranks for a model: each rule in isolation, then random schedules
 * of several sets against invariants. Loads and unloads take time; clients come, wait, leave, use models; operators
 * load and unload. */
#include "coordinator/deploy/placement.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

#define GIB ((int64_t)1 << 30)

static void open_sets(struct placement *p, int n_sets, int n_models, int64_t memory, const int *replicas)
{
    const struct deploy_setup setup = {n_models, 4, memory, 0, 5, 5, 0, 0};
    struct err e = {0};
    assert_int_equal(placement_open(p, &setup, n_sets, replicas, &e), 0);
}

static void expect(struct placement *p, double now, enum deploy_act act, int model, int set)
{
    const struct placement_decision it = placement_next(p, now);
    assert_int_equal(it.act, act);
    if (act == DEPLOY_NOTHING)
        return;
    assert_int_equal(it.model, model);
    assert_int_equal(it.set, set);
}

static void ask(struct placement *p, int i, double now, enum deploy_answer answer, int set)
{
    int found = -1;
    assert_int_equal(placement_ask(p, i, now, &found), answer);
    assert_int_equal(found, set);
}

static void load(struct placement *p, int i, int set, int64_t bytes, double now)
{
    expect(p, now, DEPLOY_OPEN, i, set);
    placement_sized(p, i, set, bytes, 0);
    expect(p, now, DEPLOY_LOAD, i, set);
    placement_loaded(p, i, set, now);
}

/* Loads model i in this set, with one user. */
static void use(struct placement *p, int i, int set, int64_t bytes, double now)
{
    ask(p, i, now, DEPLOY_WAIT, set);
    load(p, i, set, bytes, now);
    assert_int_equal(placement_enter(p, i, now), set);
}

static void have(struct placement *p, int i, int set, int64_t bytes, double now)
{
    use(p, i, set, bytes, now);
    placement_done(p, i, set, now);
}

/* The set with free room comes first, among several the one that has most. */
static void free_room_first(void **state)
{
    (void)state;
    struct placement p;
    open_sets(&p, 3, 4, 10 * GIB, NULL);
    have(&p, 0, 0, 8 * GIB, 1);
    have(&p, 1, 1, 3 * GIB, 2);
    have(&p, 2, 2, 5 * GIB, 3);
    have(&p, 3, 1, 2 * GIB, 4);
    ask(&p, 0, 5, DEPLOY_ENTER, 0);
    placement_close(&p);
}

/* If none has room, the one whose victims were used longest ago. */
static void oldest_goes(void **state)
{
    (void)state;
    struct placement p;
    open_sets(&p, 2, 4, 10 * GIB, NULL);
    have(&p, 0, 0, 8 * GIB, 1);
    have(&p, 1, 1, 8 * GIB, 2);
    ask(&p, 0, 3, DEPLOY_ENTER, 0);
    placement_done(&p, 0, 0, 3);
    ask(&p, 2, 4, DEPLOY_WAIT, 0); /* its size is unknown, so both seem to have room */
    expect(&p, 4, DEPLOY_OPEN, 2, 0);
    placement_sized(&p, 2, 0, 8 * GIB, 0);
    expect(&p, 4, DEPLOY_UNLOAD, 0, 0);
    placement_unloaded(&p, 0, 0);
    expect(&p, 4, DEPLOY_LOAD, 2, 0);
    placement_loaded(&p, 2, 0, 5);
    assert_int_equal(placement_enter(&p, 2, 5), 0);
    placement_done(&p, 2, 0, 5);
    ask(&p, 0, 6, DEPLOY_WAIT, 1); /* now the size is known; model 1 was last used at 2, model 2 at 5 */
    expect(&p, 6, DEPLOY_OPEN, 0, 1);
    placement_sized(&p, 0, 1, 8 * GIB, 0);
    expect(&p, 6, DEPLOY_UNLOAD, 1, 1);
    placement_close(&p);
}

/* A model that is being unloaded from one set may be loaded in another meanwhile; the unloading completes. */
static void comes_while_it_goes(void **state)
{
    (void)state;
    struct placement p;
    open_sets(&p, 2, 3, 10 * GIB, NULL);
    use(&p, 0, 0, 4 * GIB, 1);
    assert_false(placement_goes(&p, 0));
    assert_true(placement_unload(&p, 0));
    assert_true(placement_goes(&p, 0));
    ask(&p, 0, 2, DEPLOY_WAIT, 1);
    load(&p, 0, 1, 4 * GIB, 2);
    assert_true(placement_goes(&p, 0));
    placement_done(&p, 0, 0, 3);
    expect(&p, 3, DEPLOY_UNLOAD, 0, 0);
    assert_true(placement_goes(&p, 0));
    placement_unloaded(&p, 0, 0);
    assert_false(placement_goes(&p, 0));
    assert_int_equal(placement_look(&p, 0).state, DEPLOY_READY);
    placement_close(&p);
}

/* A model of unknown size moves on to a set that has room. */
static void sized_too_late(void **state)
{
    (void)state;
    struct placement p;
    open_sets(&p, 2, 3, 10 * GIB, NULL);
    use(&p, 0, 0, 4 * GIB, 1);
    use(&p, 1, 1, 5 * GIB, 1);
    ask(&p, 2, 2, DEPLOY_WAIT, 0);
    ask(&p, 2, 2, DEPLOY_WAIT, 0);
    expect(&p, 2, DEPLOY_OPEN, 2, 0);
    placement_done(&p, 1, 1, 2);
    assert_true(placement_unload(&p, 1));
    expect(&p, 2, DEPLOY_UNLOAD, 1, 1);
    placement_unloaded(&p, 1, 1);
    placement_sized(&p, 2, 0, 9 * GIB, 0);
    expect(&p, 2, DEPLOY_ABANDON, 2, 0);
    assert_false(placement_waits(&p, 2, 0));
    assert_true(placement_waits(&p, 2, 1));
    load(&p, 2, 1, 9 * GIB, 3);
    assert_int_equal(placement_enter(&p, 2, 3), 1);
    assert_int_equal(placement_enter(&p, 2, 3), 1);
    assert_int_equal(placement_look(&p, 2).n_users, 2);
    placement_close(&p);
}

/* A pinned model leaves no room in one set: the other one takes new models, and refuses only those that fit nowhere. */
static void pinned_beside(void **state)
{
    (void)state;
    struct placement p;
    open_sets(&p, 2, 4, 10 * GIB, NULL);
    have(&p, 0, 0, 8 * GIB, 1);
    placement_pin(&p, 0, true);
    have(&p, 1, 1, GIB, 2);
    ask(&p, 1, 3, DEPLOY_ENTER, 1);
    ask(&p, 2, 3, DEPLOY_WAIT, 1);
    expect(&p, 3, DEPLOY_OPEN, 2, 1);
    placement_sized(&p, 2, 1, 10 * GIB, 0); /* model 1 is in use, and set 0 can never hold it: it waits here */
    expect(&p, 3, DEPLOY_NOTHING, -1, -1);
    placement_done(&p, 1, 1, 4);
    expect(&p, 4, DEPLOY_UNLOAD, 1, 1);
    placement_unloaded(&p, 1, 1);
    expect(&p, 4, DEPLOY_LOAD, 2, 1);
    placement_loaded(&p, 2, 1, 5);
    ask(&p, 3, 6, DEPLOY_WAIT, 0);
    expect(&p, 6, DEPLOY_OPEN, 3, 0);
    placement_sized(&p, 3, 0, 11 * GIB, 0);
    expect(&p, 6, DEPLOY_REFUSED, 3, 0);
    placement_leave(&p, 3);
    ask(&p, 3, 6, DEPLOY_REFUSE, 0);
    placement_close(&p);
}

/* Two loads at once, each in a set; a model that queues behind one is taken by the idle set. */
static void sets_load_at_once(void **state)
{
    (void)state;
    struct placement p;
    open_sets(&p, 2, 4, 10 * GIB, NULL);
    ask(&p, 0, 0, DEPLOY_WAIT, 0);
    ask(&p, 1, 0, DEPLOY_WAIT, 1);
    ask(&p, 2, 0, DEPLOY_WAIT, 0);
    expect(&p, 0, DEPLOY_OPEN, 0, 0);
    expect(&p, 0, DEPLOY_OPEN, 1, 1);
    expect(&p, 0, DEPLOY_NOTHING, -1, -1);
    placement_sized(&p, 0, 0, GIB, 0);
    placement_sized(&p, 1, 1, GIB, 0);
    expect(&p, 0, DEPLOY_LOAD, 0, 0);
    expect(&p, 0, DEPLOY_LOAD, 1, 1);
    placement_loaded(&p, 1, 1, 1);
    expect(&p, 1, DEPLOY_OPEN, 2, 1);
    placement_close(&p);
}

/* A hot model: a second set loads it only when it is in use in the first one, and requests are divided. */
static void replicas_when_hot(void **state)
{
    (void)state;
    static const int replicas[] = {2, 1};
    struct placement p;
    open_sets(&p, 3, 2, 10 * GIB, replicas);
    use(&p, 0, 0, 4 * GIB, 0);
    expect(&p, 0, DEPLOY_NOTHING, -1, -1);
    placement_done(&p, 0, 0, 0);
    ask(&p, 0, 1, DEPLOY_ENTER, 0);
    expect(&p, 1, DEPLOY_NOTHING, -1, -1);
    ask(&p, 0, 1, DEPLOY_ENTER, 0);
    load(&p, 0, 1, 4 * GIB, 2);
    ask(&p, 0, 3, DEPLOY_ENTER, 1);
    ask(&p, 0, 3, DEPLOY_ENTER, 1);
    ask(&p, 0, 3, DEPLOY_ENTER, 0);
    expect(&p, 3, DEPLOY_NOTHING, -1, -1); /* not in the third set */
    placement_move(&p, 0, 0, 1, 3);
    assert_int_equal(p.set[0].model[0].n_users, 2);
    assert_int_equal(p.set[1].model[0].n_users, 3);
    assert_int_equal(placement_look(&p, 0).n_ready, 2);
    placement_close(&p);
}

/* The same for clients that have waited: the second one that enters finds it in use. */
static void replicas_for_many(void **state)
{
    (void)state;
    static const int replicas[] = {2};
    struct placement p;
    open_sets(&p, 2, 1, 10 * GIB, replicas);
    ask(&p, 0, 0, DEPLOY_WAIT, 0);
    ask(&p, 0, 0, DEPLOY_WAIT, 0);
    load(&p, 0, 0, 4 * GIB, 0);
    assert_int_equal(placement_enter(&p, 0, 1), 0);
    expect(&p, 1, DEPLOY_NOTHING, -1, -1);
    assert_int_equal(placement_enter(&p, 0, 1), 0);
    load(&p, 0, 1, 4 * GIB, 1);
    placement_close(&p);
}

/* An operator's load brings all replicas, and an unload removes all, including one that is being read. */
static void operators(void **state)
{
    (void)state;
    static const int replicas[] = {2};
    struct placement p;
    open_sets(&p, 2, 1, 10 * GIB, replicas);
    placement_want(&p, 0, 0);
    expect(&p, 0, DEPLOY_OPEN, 0, 0);
    expect(&p, 0, DEPLOY_OPEN, 0, 1);
    placement_sized(&p, 0, 0, GIB, 0);
    placement_sized(&p, 0, 1, GIB, 0);
    expect(&p, 0, DEPLOY_LOAD, 0, 0);
    expect(&p, 0, DEPLOY_LOAD, 0, 1);
    assert_false(placement_unload(&p, 0));
    placement_loaded(&p, 0, 0, 1);
    assert_true(placement_unload(&p, 0));
    expect(&p, 1, DEPLOY_UNLOAD, 0, 0);
    placement_loaded(&p, 0, 1, 1);
    assert_false(placement_admits(&p, 0));
    expect(&p, 1, DEPLOY_UNLOAD, 0, 1);
    placement_unloaded(&p, 0, 0);
    placement_unloaded(&p, 0, 1);
    assert_int_equal(placement_look(&p, 0).state, DEPLOY_KNOWN);
    assert_int_equal(placement_used(&p), 0);
    placement_close(&p);
}

/* A replica that cannot be loaded does not fail a request while another one runs. */
static void replica_fails(void **state)
{
    (void)state;
    static const int replicas[] = {2};
    struct placement p;
    open_sets(&p, 2, 1, 10 * GIB, replicas);
    use(&p, 0, 0, GIB, 0);
    ask(&p, 0, 0, DEPLOY_ENTER, 0);
    expect(&p, 0, DEPLOY_OPEN, 0, 1);
    placement_sized(&p, 0, 1, GIB, 0);
    expect(&p, 0, DEPLOY_LOAD, 0, 1);
    placement_failed(&p, 0, 1, 1);
    assert_false(placement_waits(&p, 0, 1));
    ask(&p, 0, 1, DEPLOY_ENTER, 0);
    expect(&p, 1, DEPLOY_NOTHING, -1, -1); /* not retried at once */
    ask(&p, 0, 7, DEPLOY_ENTER, 0);
    expect(&p, 7, DEPLOY_OPEN, 0, 1);
    placement_close(&p);
}

/* ---- random schedules ---- */

#define MODELS  10
#define SETS    4
#define CLIENTS 40
#define SEEDS   300
#define STEPS   800

struct client {
    int model; /* -1: none */
    int set;   /* the set in which it uses the model; -1: it waits */
    double until;
};

struct sim {
    struct placement p;
    struct client client[CLIENTS];
    int replicas[MODELS];
    int64_t size[MODELS];
    int units[MODELS];
    bool broken[MODELS];
    enum deploy_act pending[SETS][MODELS];
    double ends[SETS][MODELS];
    int n_open[SETS], n_served, n_refused, n_moved, n_spread;
    double now;
};

static int pick(int n)
{
    return n > 0 ? rand() % n : 0;
}

/* The numbers of clients that use a model in a set, and that wait for it. */
struct census {
    int users[SETS][MODELS], waiters[MODELS];
};

static void check_set(const struct sim *s, int k, const struct census *n)
{
    const struct deploy *d = &s->p.set[k];
    int64_t used = 0;
    int resident = 0, units = 0;
    for (int i = 0; i < MODELS; i++) {
        const struct deployment *m = &d->model[i];
        bool right = m->n_users == n->users[k][i] && (m->n_users == 0 || m->state == DEPLOY_READY) &&
                     (m->n_waiters == 0 || (m->state != DEPLOY_KNOWN && m->state != DEPLOY_FAILED));
        assert_true(right);
        used += m->slot >= 0 ? m->bytes : 0;
        units += m->slot >= 0 ? m->units : 0;
        resident += m->slot >= 0;
    }
    assert_true(used == d->used && used <= d->setup.memory);
    assert_true(units == d->used_units && units <= d->setup.units);
    assert_true(resident == d->n_resident && resident <= d->setup.n_slots);
    assert_true(s->n_open[k] <= 1);
}

/* All clients that wait for a model do so in one set, and no more sets have it than allowed. */
static void check_model(const struct sim *s, int i, const struct census *n)
{
    int found = 0, n_waiting = 0, n_held = 0;
    for (int k = 0; k < s->p.n_sets; k++) {
        found += s->p.set[k].model[i].n_waiters;
        n_waiting += placement_waits(&s->p, i, k);
        n_held += s->p.set[k].model[i].state == DEPLOY_READY && !s->p.set[k].model[i].leaving;
    }
    assert_true(found == n->waiters[i] && n_waiting <= 1);
    assert_true(n_held <= s->replicas[i] + 1); /* one more, which was waited for when another set was faster */
}

static void check(const struct sim *s)
{
    struct census n = {0};
    for (int c = 0; c < CLIENTS; c++)
        if (s->client[c].model >= 0)
            (s->client[c].set >= 0 ? n.users[s->client[c].set] : n.waiters)[s->client[c].model]++;
    for (int k = 0; k < s->p.n_sets; k++)
        check_set(s, k, &n);
    for (int i = 0; i < MODELS; i++)
        check_model(s, i, &n);
}

static void let_in(struct sim *s, int i)
{
    for (int c = 0; c < CLIENTS && placement_admits(&s->p, i); c++)
        if (s->client[c].model == i && s->client[c].set < 0) {
            s->client[c].set = placement_enter(&s->p, i, s->now);
            s->client[c].until = s->now + 0.1 * pick(30);
        }
}

static void refuse_all(struct sim *s, int i)
{
    for (int c = 0; c < CLIENTS; c++)
        if (s->client[c].model == i && s->client[c].set < 0) {
            placement_leave(&s->p, i);
            s->client[c].model = -1;
            s->n_refused++;
        }
}

static void decide(struct sim *s)
{
    for (struct placement_decision it; (it = placement_next(&s->p, s->now)).act != DEPLOY_NOTHING; check(s)) {
        const struct deployment *m = &s->p.set[it.set].model[it.model];
        enum deploy_act *pending = &s->pending[it.set][it.model];
        if (it.act == DEPLOY_ABANDON) {
            assert_int_equal(m->n_waiters, 0);
            continue;
        }
        if (it.act == DEPLOY_REFUSED) {
            for (int k = 0; k < s->p.n_sets; k++) /* no other set could take it */
                assert_true(k == it.set || s->size[it.model] > deploy_room(&s->p.set[k], it.model) ||
                            s->units[it.model] > deploy_room_units(&s->p.set[k], it.model) ||
                            s->p.set[k].model[it.model].state != DEPLOY_KNOWN || s->p.set[k].setup.n_slots < 3);
            if (placement_waits(&s->p, it.model, it.set))
                refuse_all(s, it.model);
            continue;
        }
        assert_int_equal(*pending, DEPLOY_NOTHING);
        *pending = it.act;
        s->ends[it.set][it.model] = s->now + 0.05 * (1 + pick(20));
        s->n_open[it.set] += it.act != DEPLOY_UNLOAD;
        if (it.act == DEPLOY_UNLOAD) {
            assert_int_equal(m->n_users, 0);
            assert_false(m->pinned);
        }
    }
}

static void end_pending(struct sim *s, int k, int i)
{
    enum deploy_act act = s->pending[k][i];
    s->pending[k][i] = DEPLOY_NOTHING;
    s->n_open[k] -= act != DEPLOY_UNLOAD;
    if (act == DEPLOY_UNLOAD) {
        placement_unloaded(&s->p, i, k);
    } else if (s->broken[i] && (act == DEPLOY_LOAD || pick(2) == 0)) {
        placement_failed(&s->p, i, k, s->now);
        if (placement_waits(&s->p, i, k))
            refuse_all(s, i);
    } else if (act == DEPLOY_OPEN) {
        placement_sized(&s->p, i, k, s->size[i], s->units[i]);
    } else {
        placement_loaded(&s->p, i, k, s->now);
        s->n_spread += placement_look(&s->p, i).n_ready > 1;
        let_in(s, i);
    }
}

static void arrive(struct sim *s, struct client *c)
{
    int i = pick(2) == 0 ? pick(3) : pick(MODELS), set = -1;
    enum deploy_answer answer = placement_ask(&s->p, i, s->now, &set);
    if (answer == DEPLOY_REFUSE) {
        s->n_refused++;
        return;
    }
    *c = (struct client){i, answer == DEPLOY_ENTER ? set : -1, s->now + 0.1 * pick(30)};
    if (answer == DEPLOY_WAIT && pick(6) > 0)
        c->until = INFINITY;
}

/* Moves a client to another set that has its model. */
static void move_user(struct sim *s, struct client *c)
{
    int to = pick(s->p.n_sets);
    if (to == c->set || !deploy_admits(&s->p.set[to], c->model))
        return;
    placement_move(&s->p, c->model, c->set, to, s->now);
    c->set = to;
    s->n_moved++;
}

static void go_on(struct sim *s, struct client *c, bool more)
{
    if (c->model < 0) {
        if (more && pick(4) == 0)
            arrive(s, c);
        return;
    }
    if (c->set >= 0 && pick(10) == 0)
        move_user(s, c);
    if (s->now < c->until)
        return;
    if (c->set >= 0) {
        placement_done(&s->p, c->model, c->set, s->now);
        s->n_served++;
    } else {
        placement_leave(&s->p, c->model);
    }
    c->model = -1;
}

static void meddle(struct sim *s)
{
    int i = pick(MODELS);
    switch (pick(3)) {
    case 0:
        if (i < 2) { /* pinned models must leave room for the others, which would be refused */
            placement_pin(&s->p, i, pick(2) == 0);
            let_in(s, i);
        }
        return;
    case 1:
        (void)placement_unload(&s->p, i);
        return;
    default:
        placement_want(&s->p, i, s->now);
        return;
    }
}

static void step(struct sim *s, bool more)
{
    s->now += 0.05;
    for (int k = 0; k < s->p.n_sets; k++)
        for (int i = 0; i < MODELS; i++)
            if (s->pending[k][i] != DEPLOY_NOTHING && s->now >= s->ends[k][i])
                end_pending(s, k, i);
    for (int c = 0; c < CLIENTS; c++)
        go_on(s, &s->client[c], more);
    if (more && pick(20) == 0)
        meddle(s);
    check(s);
    decide(s);
    check(s);
}

static bool anyone(const struct sim *s)
{
    for (int c = 0; c < CLIENTS; c++)
        if (s->client[c].model >= 0)
            return true;
    return false;
}

static void open_sim(struct sim *s, unsigned seed)
{
    struct err e = {0};
    srand(seed);
    const struct deploy_setup setup = {MODELS,         3 + pick(2), 10 * GIB, pick(2) * 3.0, 0.5 + 0.1 * pick(20),
                                       0.1 * pick(10), pick(4),     8};
    assert_int_equal(placement_open(&s->p, &setup, 1 + pick(SETS), s->replicas, &e), 0);
    for (int i = 0; i < MODELS; i++) {
        s->replicas[i] = 1 + (pick(3) == 0) * pick(s->p.n_sets);
        s->units[i] = pick(4);
        s->size[i] = GIB + (int64_t)pick(1000) * GIB / 250;
        s->broken[i] = pick(8) == 0;
    }
    s->size[pick(MODELS)] = 11 * GIB;
    s->units[pick(MODELS)] = 9;
    for (int c = 0; c < CLIENTS; c++)
        s->client[c] = (struct client){.model = -1, .set = -1};
}

static void run_cluster(unsigned seed, int *n_moved, int *n_spread)
{
    struct sim s = {0};
    open_sim(&s, seed);
    for (int k = 0; k < STEPS; k++)
        step(&s, true);
    for (int i = 0; i < MODELS; i++)
        placement_pin(&s.p, i, false);
    for (int k = 0; anyone(&s); k++) {
        assert_true(k < 4000); /* every client is served or refused in the end */
        for (int i = 0; i < MODELS; i++)
            let_in(&s, i);
        step(&s, false);
    }
    assert_true(s.n_served > 0);
    for (int k = 0; k < s.p.n_sets; k++)
        s.p.set[k].setup.keep_alive = 0.01;
    for (int k = 0; k < 400; k++)
        step(&s, false);
    for (int k = 0; k < s.p.n_sets; k++) {
        assert_int_equal(s.p.set[k].used, 0);
        assert_int_equal(s.p.set[k].n_resident, 0);
    }
    *n_moved += s.n_moved;
    *n_spread += s.n_spread;
    placement_close(&s.p);
}

static void random_schedules(void **state)
{
    (void)state;
    int n_moved = 0, n_spread = 0;
    for (unsigned seed = 1; seed <= SEEDS; seed++)
        run_cluster(seed, &n_moved, &n_spread);
    assert_true(n_moved > SEEDS && n_spread > SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_room_first),     cmocka_unit_test(oldest_goes),     cmocka_unit_test(sized_too_late),
        cmocka_unit_test(comes_while_it_goes), cmocka_unit_test(pinned_beside),   cmocka_unit_test(sets_load_at_once),
        cmocka_unit_test(replicas_when_hot),   cmocka_unit_test(operators),       cmocka_unit_test(replica_fails),
        cmocka_unit_test(replicas_for_many),   cmocka_unit_test(random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
