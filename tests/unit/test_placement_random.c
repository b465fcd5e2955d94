/* tests/unit/test_placement_random.c - the choice of a set of ranks for a model: random schedules of several sets
 * against invariants. Loads and unloads take time; clients come, wait, leave, use models; operators load and unload. */
#include "coordinator/deploy/placement.h"
#include "tests/unit/deployments.h"

#include <math.h>
#include <stdlib.h>

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

static void check_sets(const struct sim *s)
{
    struct census n = {0};
    for (int c = 0; c < CLIENTS; c++)
        if (s->client[c].model >= 0)
            (s->client[c].set >= 0 ? n.users[s->client[c].set] : n.waiters)[s->client[c].model]++;
    for (int k = 0; k < s->p.n_sets; k++)
        deployments_check(&s->p.set[k], n.users[k], s->n_open[k]);
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
    for (struct placement_decision it; (it = placement_next(&s->p, s->now)).act != DEPLOY_NOTHING; check_sets(s)) {
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
    check_sets(s);
    decide(s);
    check_sets(s);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
