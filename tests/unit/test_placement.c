/* tests/unit/test_placement.c - the choice of a set of ranks for a model: each rule in isolation. */
#include "coordinator/deploy/placement.h"
#include "tests/unit/unit.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(free_room_first),   cmocka_unit_test(oldest_goes),
                                       cmocka_unit_test(sized_too_late),    cmocka_unit_test(comes_while_it_goes),
                                       cmocka_unit_test(pinned_beside),     cmocka_unit_test(sets_load_at_once),
                                       cmocka_unit_test(replicas_when_hot), cmocka_unit_test(operators),
                                       cmocka_unit_test(replica_fails),     cmocka_unit_test(replicas_for_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
