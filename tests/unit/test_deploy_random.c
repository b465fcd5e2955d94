/* tests/unit/test_deploy_random.c - the choice of loaded models: random schedules against invariants. Loads and unloads
 * take time; clients come, wait, leave, use models; operators load, unload and pin. */
#include "tests/unit/deployments.h"

#include <math.h>
#include <stdlib.h>

#define MODELS  12
#define CLIENTS 40
#define SEEDS   400
#define STEPS   1500

struct client {
    int model; /* -1: none */
    bool uses;
    double until; /* end of its use, or of its patience while it waits */
};

struct sim {
    struct deploy d;
    struct client client[CLIENTS];
    int64_t size[MODELS];
    int units[MODELS];
    bool broken[MODELS], first_served[MODELS], had_waiter[MODELS];
    double order[MODELS]; /* time since which clients wait for it */
    enum deploy_act pending[MODELS];
    double ends[MODELS];
    int n_open; /* OPEN or LOAD in progress */
    int n_refused, n_served, n_left, n_yielded;
    double now;
    bool calm; /* no operator acts, no client leaves */
    double read_at[MODELS], stays_until[MODELS];
};

static int pick(int n)
{
    return rand() % n;
}

static void check_models(const struct sim *s)
{
    int users[MODELS] = {0}, waiters[MODELS] = {0};
    for (int c = 0; c < CLIENTS; c++)
        if (s->client[c].model >= 0)
            (s->client[c].uses ? users : waiters)[s->client[c].model]++;
    for (int i = 0; i < MODELS; i++)
        assert_int_equal(s->d.model[i].n_waiters, waiters[i]);
    deployments_check(&s->d, users, s->n_open);
}

static void let_in(struct sim *s, int i)
{
    for (int c = 0; c < CLIENTS && deploy_admits(&s->d, i); c++)
        if (s->client[c].model == i && !s->client[c].uses) {
            deploy_enter(&s->d, i, s->now);
            s->client[c].uses = true;
            s->client[c].until = s->now + 0.1 * pick(30);
            s->had_waiter[i] = true;
        }
}

static void refuse_all(struct sim *s, int i)
{
    for (int c = 0; c < CLIENTS; c++)
        if (s->client[c].model == i && !s->client[c].uses) {
            deploy_leave(&s->d, i);
            s->client[c].model = -1;
            s->n_refused++;
        }
}

/* No client that has waited longer for another model is passed over. */
static void check_order(const struct sim *s, int i)
{
    for (int k = 0; k < MODELS; k++)
        if (k != i && s->d.model[k].state == DEPLOY_WAITING)
            assert_true(s->d.model[k].order > s->d.model[i].order);
}

static void decide(struct sim *s)
{
    for (struct deploy_decision it; (it = deploy_next(&s->d, s->now)).act != DEPLOY_NOTHING; check_models(s)) {
        struct deployment *m = &s->d.model[it.model];
        if (it.act == DEPLOY_ABANDON) {
            assert_int_equal(m->n_waiters, 0);
        } else if (it.act == DEPLOY_REFUSED) {
            refuse_all(s, it.model);
        } else {
            assert_int_equal(s->pending[it.model], DEPLOY_NOTHING); /* one load, one unload at a time */
            s->pending[it.model] = it.act;
            s->ends[it.model] = s->now + 0.05 * (1 + pick(20));
            s->n_open += it.act != DEPLOY_UNLOAD;
            if (it.act == DEPLOY_LOAD)
                s->read_at[it.model] = s->now;
        }
        if (it.act == DEPLOY_OPEN) {
            assert_true(m->n_waiters > 0 || m->wanted);
            check_order(s, it.model);
        } else if (it.act == DEPLOY_UNLOAD) {
            assert_int_equal(m->n_users, 0);
            assert_false(m->pinned);
            if (s->calm && s->d.setup.keep_alive <= 0)
                assert_true(s->now >= s->stays_until[it.model]);
            assert_true(!s->had_waiter[it.model] || s->first_served[it.model]);
            s->had_waiter[it.model] = s->first_served[it.model] = false;
        }
    }
}

static void end_pending(struct sim *s, int i)
{
    enum deploy_act act = s->pending[i];
    s->pending[i] = DEPLOY_NOTHING;
    s->n_open -= act != DEPLOY_UNLOAD;
    if (act == DEPLOY_UNLOAD) {
        deploy_unloaded(&s->d, i);
    } else if (s->broken[i] && (act == DEPLOY_LOAD || pick(2) == 0)) {
        deploy_failed(&s->d, i, s->now);
        refuse_all(s, i);
    } else if (act == DEPLOY_OPEN) {
        deploy_sized(&s->d, i, s->size[i], s->units[i]);
    } else {
        deploy_loaded(&s->d, i, s->now);
        s->stays_until[i] = s->now + fmin(s->d.setup.residence * (s->now - s->read_at[i]), s->d.setup.patience);
        let_in(s, i);
    }
}

static int zipf(void)
{
    double sum = 0, x = (double)rand() / RAND_MAX;
    for (int i = 0; i < MODELS; i++)
        sum += 1.0 / (i + 1);
    for (int i = 0; i < MODELS; i++)
        if ((x -= 1.0 / (i + 1) / sum) <= 0)
            return i;
    return MODELS - 1;
}

static void arrive(struct sim *s, struct client *c)
{
    int i = zipf();
    enum deploy_answer answer = deploy_ask(&s->d, i, s->now);
    if (answer == DEPLOY_REFUSE) {
        s->n_refused++;
        return;
    }
    *c = (struct client){i, answer == DEPLOY_ENTER, s->now + 0.1 * pick(30)};
    if (answer == DEPLOY_WAIT && !s->calm && pick(6) > 0)
        c->until = INFINITY;
    if (answer == DEPLOY_WAIT && s->calm)
        c->until = INFINITY;
}

static void move_client(struct sim *s, struct client *c, bool more)
{
    if (c->model < 0) {
        if (more && pick(4) == 0)
            arrive(s, c);
        return;
    }
    if (s->now < c->until)
        return;
    if (c->uses) {
        deploy_done(&s->d, c->model, s->now);
        s->first_served[c->model] = true;
        s->n_served++;
    } else {
        deploy_leave(&s->d, c->model);
        s->n_left++;
    }
    c->model = -1;
}

static void meddle(struct sim *s)
{
    int i = pick(MODELS);
    switch (pick(4)) {
    case 0:
        if (i >= 2) /* pinned models must leave room for the others, which would be refused */
            return;
        deploy_pin(&s->d, i, pick(2) == 0);
        let_in(s, i);
        return;
    case 1:
        (void)deploy_unload(&s->d, i);
        return;
    case 2:
        deploy_want(&s->d, i, s->now);
        return;
    default:
        return;
    }
}

static void step(struct sim *s, bool more)
{
    s->now += 0.05;
    for (int i = 0; i < MODELS; i++)
        if (s->pending[i] != DEPLOY_NOTHING && s->now >= s->ends[i])
            end_pending(s, i);
    for (int c = 0; c < CLIENTS; c++)
        move_client(s, &s->client[c], more);
    if (more && !s->calm && pick(20) == 0)
        meddle(s);
    check_models(s);
    decide(s);
    check_models(s);
}

static bool anyone(const struct sim *s)
{
    for (int c = 0; c < CLIENTS; c++)
        if (s->client[c].model >= 0)
            return true;
    return false;
}

static void run_events(unsigned seed)
{
    struct sim s = {.calm = seed % 2 == 0};
    srand(seed);
    const struct deploy_setup setup = {MODELS, 1 + pick(4), 10 * GIB, 0, 10, 5, 0, 0};
    struct err e = {0};
    assert_int_equal(deploy_open(&s.d, &setup, &e), 0);
    s.d.setup.patience = 0.5 + 0.1 * pick(20);
    s.d.setup.keep_alive = pick(2) * 3.0;
    s.d.setup.hold = 0.1 * pick(10);
    s.d.setup.residence = pick(4);
    for (int i = 0; i < MODELS; i++) {
        s.units[i] = pick(4);
        s.size[i] = GIB + (int64_t)pick(1000) * GIB / 200;
        s.broken[i] = pick(8) == 0;
    }
    s.size[pick(MODELS)] = 11 * GIB;
    s.units[pick(MODELS)] = 9;
    s.d.setup.units = 8;
    for (int c = 0; c < CLIENTS; c++)
        s.client[c].model = -1;
    for (int k = 0; k < STEPS; k++)
        step(&s, true);
    for (int i = 0; i < MODELS; i++)
        deploy_pin(&s.d, i, false);
    for (int k = 0; anyone(&s); k++) {
        assert_true(k < 20000); /* every client is served or refused in the end */
        for (int i = 0; i < MODELS; i++)
            let_in(&s, i);
        step(&s, false);
    }
    assert_true(s.n_served > 0);
    s.d.setup.keep_alive = 0.01;
    for (int k = 0; k < 2000; k++)
        step(&s, false);
    assert_int_equal(s.d.used, 0);
    assert_int_equal(s.d.n_resident, 0);
    deploy_close(&s.d);
}

static void random_schedules(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= SEEDS; seed++)
        run_events(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
