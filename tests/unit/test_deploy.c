/* tests/unit/test_deploy.c - the choice of loaded models: each race in isolation. Random schedules:
 * test_deploy_random.c. */
#include "coordinator/deploy/deploy.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

#define GIB ((int64_t)1 << 30)

static void open_table(struct deploy *d, int n_models, int n_slots, int64_t memory)
{
    const struct deploy_setup setup = {n_models, n_slots, memory, 0, 10, 5, 0, 0};
    struct err e = {0};
    assert_int_equal(deploy_open(d, &setup, &e), 0);
}

static void expect(struct deploy *d, double now, enum deploy_act act, int model)
{
    const struct deploy_decision it = deploy_next(d, now);
    assert_int_equal(it.act, act);
    if (act != DEPLOY_NOTHING)
        assert_int_equal(it.model, model);
}

/* Loads model i, and its waiters enter. */
static void load(struct deploy *d, int i, int64_t bytes, double now)
{
    expect(d, now, DEPLOY_OPEN, i);
    deploy_sized(d, i, bytes, 0);
    expect(d, now, DEPLOY_LOAD, i);
    deploy_loaded(d, i, now);
    while (d->model[i].n_waiters > 0)
        deploy_enter(d, i, now);
}

/* Makes model i loaded and idle. */
static void have(struct deploy *d, int i, int64_t bytes, double now)
{
    assert_int_equal(deploy_ask(d, i, now), DEPLOY_WAIT);
    load(d, i, bytes, now);
    deploy_done(d, i, now);
}

static void many_askers_one_load(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 2, 2, 10 * GIB);
    for (int k = 0; k < 5; k++)
        assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    expect(&d, 0, DEPLOY_OPEN, 0);
    assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    expect(&d, 0, DEPLOY_NOTHING, -1);
    deploy_sized(&d, 0, GIB, 0);
    expect(&d, 0, DEPLOY_LOAD, 0);
    assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    expect(&d, 0, DEPLOY_NOTHING, -1);
    deploy_loaded(&d, 0, 1);
    assert_true(deploy_admits(&d, 0));
    for (int k = 0; k < 7; k++)
        deploy_enter(&d, 0, 1);
    assert_int_equal(deploy_ask(&d, 0, 1), DEPLOY_ENTER);
    assert_int_equal(d.model[0].n_users, 8);
    assert_int_equal(d.n_loads, 1);
    deploy_close(&d);
}

/* Victims by bytes and use: the least recently used idle models, as many as necessary; never a busy or a pinned one. */
static void victims(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 6, 6, 10 * GIB);
    for (int i = 0; i < 5; i++)
        have(&d, i, 2 * GIB, i);
    assert_int_equal(deploy_ask(&d, 0, 5), DEPLOY_ENTER); /* busy */
    deploy_pin(&d, 1, true);
    assert_int_equal(deploy_ask(&d, 2, 6), DEPLOY_ENTER); /* used last */
    deploy_done(&d, 2, 6);
    assert_int_equal(deploy_ask(&d, 5, 7), DEPLOY_WAIT);
    expect(&d, 7, DEPLOY_OPEN, 5);
    deploy_sized(&d, 5, 4 * GIB, 0);
    expect(&d, 7, DEPLOY_UNLOAD, 3);
    expect(&d, 7, DEPLOY_NOTHING, -1);
    deploy_unloaded(&d, 3);
    expect(&d, 7, DEPLOY_UNLOAD, 4);
    deploy_unloaded(&d, 4);
    expect(&d, 7, DEPLOY_LOAD, 5);
    assert_int_equal(d.used, 10 * GIB);
    deploy_close(&d);
}

/* Idle models that would not free enough room together stay: nothing is evicted in vain. */
static void nothing_in_vain(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 3, 3, 10 * GIB);
    have(&d, 0, 2 * GIB, 0);
    assert_int_equal(deploy_ask(&d, 1, 1), DEPLOY_WAIT);
    load(&d, 1, 8 * GIB, 1);
    assert_int_equal(deploy_ask(&d, 2, 2), DEPLOY_WAIT);
    expect(&d, 2, DEPLOY_OPEN, 2);
    deploy_sized(&d, 2, 3 * GIB, 0);
    expect(&d, 2, DEPLOY_NOTHING, -1);
    assert_int_equal(d.model[0].state, DEPLOY_READY);
    deploy_done(&d, 1, 3);
    expect(&d, 3, DEPLOY_UNLOAD, 0);
    deploy_unloaded(&d, 0);
    expect(&d, 3, DEPLOY_UNLOAD, 1);
    deploy_unloaded(&d, 1);
    expect(&d, 3, DEPLOY_LOAD, 2);
    deploy_close(&d);
}

/* A client that leaves causes neither a load nor an eviction, and keeps no place in the queue. */
static void leavers(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 3, 1, 10 * GIB);
    have(&d, 0, GIB, 0);
    assert_int_equal(deploy_ask(&d, 1, 1), DEPLOY_WAIT);
    deploy_leave(&d, 1);
    expect(&d, 1, DEPLOY_NOTHING, -1);
    assert_int_equal(d.model[1].state, DEPLOY_KNOWN);
    assert_int_equal(deploy_ask(&d, 1, 2), DEPLOY_WAIT);
    expect(&d, 2, DEPLOY_OPEN, 1);
    assert_int_equal(deploy_ask(&d, 2, 2), DEPLOY_WAIT);
    deploy_leave(&d, 1);
    deploy_sized(&d, 1, GIB, 0);
    expect(&d, 2, DEPLOY_ABANDON, 1);
    assert_int_equal(d.model[1].state, DEPLOY_KNOWN);
    assert_int_equal(d.model[0].state, DEPLOY_READY);
    expect(&d, 2, DEPLOY_OPEN, 2);
    deploy_close(&d);
}

/* The first waiter of a model that was just loaded is served before the model can be unloaded. */
static void first_waiter(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 2, 1, 10 * GIB);
    assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    assert_int_equal(deploy_ask(&d, 1, 0), DEPLOY_WAIT);
    expect(&d, 0, DEPLOY_OPEN, 0);
    deploy_sized(&d, 0, GIB, 0);
    expect(&d, 0, DEPLOY_LOAD, 0);
    deploy_loaded(&d, 0, 1);
    expect(&d, 1, DEPLOY_OPEN, 1);
    deploy_sized(&d, 1, GIB, 0);
    expect(&d, 1, DEPLOY_NOTHING, -1);
    deploy_enter(&d, 0, 1);
    expect(&d, 1, DEPLOY_NOTHING, -1);
    deploy_done(&d, 0, 2);
    expect(&d, 2, DEPLOY_UNLOAD, 0);
    assert_int_equal(deploy_ask(&d, 0, 2), DEPLOY_WAIT); /* it is being unloaded: the client waits for the next load */
    deploy_unloaded(&d, 0);
    expect(&d, 2, DEPLOY_LOAD, 1);
    deploy_loaded(&d, 1, 3);
    deploy_enter(&d, 1, 3);
    deploy_done(&d, 1, 3);
    expect(&d, 3, DEPLOY_OPEN, 0);
    deploy_sized(&d, 0, GIB, 0);
    expect(&d, 3, DEPLOY_UNLOAD, 1);
    deploy_unloaded(&d, 1);
    expect(&d, 3, DEPLOY_LOAD, 0);
    deploy_close(&d);
}

/* A model that is never idle yields after a while, and its own clients queue. */
static void yielding(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 2, 1, 10 * GIB);
    assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    load(&d, 0, GIB, 0);
    assert_int_equal(deploy_ask(&d, 1, 1), DEPLOY_WAIT);
    expect(&d, 1, DEPLOY_OPEN, 1);
    deploy_sized(&d, 1, GIB, 0);
    expect(&d, 5, DEPLOY_NOTHING, -1);
    assert_int_equal(deploy_ask(&d, 0, 5), DEPLOY_ENTER);
    assert_true(deploy_due(&d) == 11);
    expect(&d, 11, DEPLOY_NOTHING, -1);
    assert_true(isinf(deploy_due(&d))); /* finished: no deadline is left */
    assert_int_equal(deploy_ask(&d, 0, 11), DEPLOY_WAIT);
    deploy_done(&d, 0, 12);
    expect(&d, 12, DEPLOY_NOTHING, -1); /* a client still uses it */
    deploy_done(&d, 0, 13);
    expect(&d, 13, DEPLOY_UNLOAD, 0);
    deploy_unloaded(&d, 0);
    expect(&d, 13, DEPLOY_LOAD, 1);
    deploy_loaded(&d, 1, 14);
    assert_int_equal(d.model[0].state, DEPLOY_WAITING);
    deploy_enter(&d, 1, 14);
    deploy_done(&d, 1, 15);
    expect(&d, 15, DEPLOY_OPEN, 0);
    deploy_close(&d);
}

/* A loaded model stays for twice the time that its load took, idle or busy; waiting clients are then served by the
 * clock alone. An operator need not wait. */
static void residence(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 2, 1, 10 * GIB);
    d.setup.residence = 2;
    assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    expect(&d, 0, DEPLOY_OPEN, 0);
    deploy_sized(&d, 0, GIB, 0);
    expect(&d, 1, DEPLOY_LOAD, 0);
    deploy_loaded(&d, 0, 3); /* after 2 s */
    deploy_enter(&d, 0, 3);
    deploy_done(&d, 0, 3);
    assert_int_equal(deploy_ask(&d, 1, 4), DEPLOY_WAIT);
    expect(&d, 4, DEPLOY_OPEN, 1);
    deploy_sized(&d, 1, GIB, 0);
    expect(&d, 4, DEPLOY_NOTHING, -1);
    assert_true(deploy_due(&d) == 7);
    assert_int_equal(deploy_ask(&d, 0, 6), DEPLOY_ENTER); /* and it is used meanwhile */
    deploy_done(&d, 0, 6);
    expect(&d, 6.9, DEPLOY_NOTHING, -1);
    expect(&d, 7, DEPLOY_UNLOAD, 0);
    deploy_unloaded(&d, 0);
    expect(&d, 7, DEPLOY_LOAD, 1);
    deploy_loaded(&d, 1, 27); /* after 20 s: it stays no longer than the first in the queue has patience */
    deploy_enter(&d, 1, 27);
    assert_int_equal(deploy_ask(&d, 0, 27), DEPLOY_WAIT);
    expect(&d, 27, DEPLOY_OPEN, 0);
    deploy_sized(&d, 0, GIB, 0);
    assert_int_equal(deploy_ask(&d, 1, 28), DEPLOY_ENTER); /* never idle from here on */
    expect(&d, 36.9, DEPLOY_NOTHING, -1);
    assert_true(deploy_due(&d) == 37);
    assert_int_equal(deploy_ask(&d, 1, 36), DEPLOY_ENTER);
    expect(&d, 37, DEPLOY_NOTHING, -1);
    assert_int_equal(deploy_ask(&d, 1, 37), DEPLOY_WAIT);
    for (int k = 0; k < 3; k++)
        deploy_done(&d, 1, 38);
    expect(&d, 38, DEPLOY_UNLOAD, 1);
    deploy_unloaded(&d, 1);
    expect(&d, 38, DEPLOY_LOAD, 0);
    deploy_loaded(&d, 0, 40);
    deploy_enter(&d, 0, 40);
    deploy_done(&d, 0, 40);
    assert_true(deploy_unload(&d, 0));
    expect(&d, 40, DEPLOY_UNLOAD, 0);
    deploy_close(&d);
}

/* A model is refused by its size even if everything else is unloaded; also if pinned models take the memory or the
 * slots. */
static void too_large(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 3, 2, 10 * GIB);
    have(&d, 0, 4 * GIB, 0);
    assert_int_equal(deploy_ask(&d, 1, 1), DEPLOY_WAIT);
    expect(&d, 1, DEPLOY_OPEN, 1);
    deploy_sized(&d, 1, 11 * GIB, 0);
    expect(&d, 1, DEPLOY_REFUSED, 1);
    deploy_leave(&d, 1);
    assert_int_equal(d.model[0].state, DEPLOY_READY);
    assert_int_equal(deploy_ask(&d, 1, 2), DEPLOY_REFUSE);
    deploy_pin(&d, 0, true);
    assert_true(deploy_room(&d, 1) == 6 * GIB);
    assert_int_equal(deploy_ask(&d, 1, 20), DEPLOY_WAIT); /* a new attempt */
    expect(&d, 20, DEPLOY_OPEN, 1);
    deploy_sized(&d, 1, 7 * GIB, 0);
    expect(&d, 20, DEPLOY_REFUSED, 1);
    deploy_leave(&d, 1);
    assert_false(deploy_unload(&d, 0));
    have(&d, 2, GIB, 40);
    deploy_pin(&d, 2, true);
    assert_int_equal(deploy_ask(&d, 1, 50), DEPLOY_WAIT);
    expect(&d, 50, DEPLOY_OPEN, 1);
    deploy_sized(&d, 1, GIB, 0);
    expect(&d, 50, DEPLOY_REFUSED, 1); /* both slots are pinned */
    deploy_close(&d);
}

static void failures(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 2, 1, 10 * GIB);
    assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    expect(&d, 0, DEPLOY_OPEN, 0);
    deploy_failed(&d, 0, 0);
    deploy_leave(&d, 0);
    assert_int_equal(d.model[0].state, DEPLOY_FAILED);
    assert_int_equal(deploy_ask(&d, 0, 4), DEPLOY_REFUSE);
    assert_int_equal(deploy_ask(&d, 0, 5), DEPLOY_WAIT);
    expect(&d, 5, DEPLOY_OPEN, 0);
    deploy_sized(&d, 0, GIB, 0);
    expect(&d, 5, DEPLOY_LOAD, 0);
    assert_int_equal(d.used, GIB);
    deploy_failed(&d, 0, 6);
    deploy_leave(&d, 0);
    assert_int_equal(d.used, 0);
    assert_int_equal(d.n_resident, 0);
    deploy_want(&d, 0, 6); /* an operator may retry at once */
    load(&d, 0, GIB, 6);
    assert_int_equal(d.model[0].state, DEPLOY_READY);
    deploy_close(&d);
}

static void operators(void **state)
{
    (void)state;
    struct deploy d;
    const struct deploy_setup setup = {2, 2, 10 * GIB, 60, 10, 5, 0, 0};
    struct err e = {0};
    assert_int_equal(deploy_open(&d, &setup, &e), 0);
    assert_int_equal(deploy_ask(&d, 0, 0), DEPLOY_WAIT);
    load(&d, 0, GIB, 0);
    assert_true(deploy_unload(&d, 0));
    expect(&d, 1, DEPLOY_NOTHING, -1);
    assert_int_equal(deploy_ask(&d, 0, 1), DEPLOY_WAIT);
    deploy_pin(&d, 0, true); /* cancels the unloading: waiting clients may enter */
    assert_true(deploy_admits(&d, 0));
    deploy_enter(&d, 0, 1);
    deploy_done(&d, 0, 2);
    deploy_done(&d, 0, 2);
    expect(&d, 50, DEPLOY_NOTHING, -1);
    assert_true(isinf(deploy_due(&d))); /* pinned models do not age */
    deploy_pin(&d, 0, false);
    assert_true(deploy_due(&d) == 62);
    deploy_pin(&d, 0, true);
    expect(&d, 1000, DEPLOY_NOTHING, -1);
    deploy_pin(&d, 0, false);
    expect(&d, 1000, DEPLOY_UNLOAD, 0);
    deploy_unloaded(&d, 0);
    assert_int_equal(d.model[0].state, DEPLOY_KNOWN);
    assert_false(deploy_unload(&d, 0));
    deploy_close(&d);
}

/* Units of KV memory count like bytes. */
static void units_are_room(void **state)
{
    (void)state;
    struct deploy d;
    open_table(&d, 3, 3, 10 * GIB);
    d.setup.units = 5;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(deploy_ask(&d, i, i), DEPLOY_WAIT);
        expect(&d, i, DEPLOY_OPEN, i);
        deploy_sized(&d, i, GIB, 2);
        expect(&d, i, DEPLOY_LOAD, i);
        deploy_loaded(&d, i, i);
        deploy_enter(&d, i, i);
        deploy_done(&d, i, i);
    }
    assert_int_equal(d.used_units, 4);
    deploy_pin(&d, 1, true);
    assert_int_equal(deploy_ask(&d, 2, 2), DEPLOY_WAIT);
    expect(&d, 2, DEPLOY_OPEN, 2);
    deploy_sized(&d, 2, GIB, 3);
    expect(&d, 2, DEPLOY_UNLOAD, 0); /* the bytes alone would fit */
    deploy_unloaded(&d, 0);
    expect(&d, 2, DEPLOY_LOAD, 2);
    deploy_failed(&d, 2, 3);
    deploy_leave(&d, 2);
    assert_int_equal(d.used_units, 2);
    assert_int_equal(deploy_room_units(&d, 2), 3);
    deploy_want(&d, 2, 10);
    expect(&d, 10, DEPLOY_OPEN, 2);
    deploy_sized(&d, 2, GIB, 4); /* more than the pinned one leaves */
    expect(&d, 10, DEPLOY_REFUSED, 2);
    deploy_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_askers_one_load),
        cmocka_unit_test(victims),
        cmocka_unit_test(nothing_in_vain),
        cmocka_unit_test(leavers),
        cmocka_unit_test(first_waiter),
        cmocka_unit_test(yielding),
        cmocka_unit_test(residence),
        cmocka_unit_test(units_are_room),
        cmocka_unit_test(too_large),
        cmocka_unit_test(failures),
        cmocka_unit_test(operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
