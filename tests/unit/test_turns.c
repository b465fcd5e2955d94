/* tests/unit/test_turns.c - the order of tasks: in turns between clients, within one between its parties, within a
 * party by priority and arrival; random schedules compared with a list that is searched each time. */
#include "coordinator/server/turns.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define CLIENTS 7
#define PARTIES 3 /* of each, its own requests among them */
#define JOBS    40

static struct client client[CLIENTS];
static struct party party[CLIENTS][PARTIES];
static struct task tasks[JOBS];

static void forget_all(void)
{
    memset(client, 0, sizeof client);
    memset(party, 0, sizeof party);
}

static struct task *make_for(struct turns *t, int j, int c, int p, int priority, int n_sequences)
{
    memset(&tasks[j], 0, sizeof tasks[j]);
    tasks[j].ticket.client = &client[c];
    tasks[j].ticket.party = &party[c][p];
    tasks[j].number = (uint64_t)j;
    tasks[j].ticket.n_sequences = n_sequences;
    tasks[j].message.generate.priority = priority;
    turns_put(t, &tasks[j]);
    return &tasks[j];
}

static struct task *make_task(struct turns *t, int j, int c, int priority, int n_sequences)
{
    return make_for(t, j, c, 0, priority, n_sequences);
}

static void turns(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_TEXTS};
    forget_all();
    for (int j = 0; j < 10; j++) /* a flood from one client, then one task each from two others */
        make_task(&t, j, 0, 0, 1);
    make_task(&t, 10, 1, 0, 1);
    make_task(&t, 11, 2, 0, 1);
    static const int expected[] = {0, 10, 11, 1, 2};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_ptr_equal(turns_take(&t), &tasks[expected[i]]);
    make_task(&t, 12, 3, 0, 1); /* a later client is next after the one whose turn it is */
    assert_ptr_equal(turns_take(&t), &tasks[3]);
    assert_ptr_equal(turns_take(&t), &tasks[12]);
    assert_ptr_equal(turns_heaviest(&t, 5), &tasks[9]);
    assert_null(turns_heaviest(&t, 6));
    turns_remove(&t, &tasks[9]);
    for (int j = 4; j < 9; j++)
        assert_ptr_equal(turns_take(&t), &tasks[j]);
    assert_null(turns_take(&t));
    assert_int_equal(t.n, 0);
    assert_int_equal(t.all.n_sequences, 0);
}

static void priorities(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_REPLICA};
    forget_all();
    static const int priority[] = {5, 1, 3, 1, 5, 0};
    for (int j = 0; j < 6; j++)
        make_task(&t, j, 0, priority[j], 1);
    make_task(&t, 6, 1, 9, 1); /* the other client's turn comes nevertheless */
    static const int expected[] = {5, 6, 1, 3, 2, 0, 4};
    for (size_t i = 0; i < 7; i++)
        assert_ptr_equal(turns_take(&t), &tasks[expected[i]]);
}

static void take_in_order(struct turns *t, const int *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct task *task = turns_take(t);
        assert_non_null(task);
        assert_int_equal(task->number, expected[i]);
    }
}

/* A client that asks on behalf of three parties, one of which floods it, beside a client of one. */
static void parties(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_TEXTS};
    forget_all();
    for (int j = 0; j < 8; j++)
        make_for(&t, j, 0, 0, 0, 1);
    make_for(&t, 8, 0, 1, 0, 1);
    make_for(&t, 9, 0, 2, 0, 1);
    make_for(&t, 10, 1, 0, 0, 1);
    make_for(&t, 11, 1, 0, 0, 1);
    static const int expected[] = {0, 10, 8, 11, 9, 1, 2}; /* its names give the first client no more turns */
    take_in_order(&t, expected, sizeof expected / sizeof expected[0]);
    make_for(&t, 12, 0, 2, 0, 1); /* a party that comes back is next after the one whose turn it is */
    static const int rest[] = {3, 12, 4, 5, 6, 7};
    take_in_order(&t, rest, sizeof rest / sizeof rest[0]);
    assert_null(turns_take(&t));
    assert_null(client[0].turn[TURN_TEXTS].below);
    assert_int_equal(t.n + t.all.n_sequences, 0);
}

static bool has_number(const void *context, const struct task *task)
{
    return task->number >= *(const uint64_t *)context;
}

/* The turn passes over tasks that do not fit, and only the client and party of a found one lose theirs. */
static void fitting(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_MODEL};
    uint64_t least = 3;
    forget_all();
    make_for(&t, 0, 0, 0, 0, 1);
    make_for(&t, 1, 0, 1, 0, 1);
    make_for(&t, 2, 1, 0, 0, 1);
    make_for(&t, 3, 1, 1, 0, 1);
    make_for(&t, 4, 1, 1, 0, 1);
    assert_ptr_equal(turns_take_fitting(&t, has_number, &least), &tasks[3]);
    assert_ptr_equal(turns_take_fitting(&t, has_number, &least), &tasks[4]);
    assert_null(turns_take_fitting(&t, has_number, &least));
    static const int rest[] = {0, 2, 1};
    take_in_order(&t, rest, 3);
    for (int j = 0; j < 6; j++)
        make_for(&t, j, j / 3, 0, 0, 1);
    least = 0;
    static const uint64_t turns[] = {0, 3, 1, 4, 2, 5}; /* where all fit, clients take turns */
    for (int i = 0; i < 6; i++)
        assert_int_equal(turns_take_fitting(&t, has_number, &least)->number, turns[i]);
}

/* The heaviest client counts as a whole; its heaviest party loses its newest task. */
static void heaviest(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_REPLICA};
    forget_all();
    for (int j = 0; j < 6; j++)
        make_for(&t, j, 0, j % 3, 0, 1); /* 2 each, 6 together */
    make_for(&t, 6, 0, 1, 0, 1);
    for (int j = 7; j < 12; j++)
        make_for(&t, j, 1, 0, 0, 1);
    assert_ptr_equal(turns_heaviest(&t, 6), &tasks[6]);
    assert_null(turns_heaviest(&t, 7));
    assert_ptr_equal(turns_heaviest_party(&t, &client[0], 2), &tasks[6]);
    assert_null(turns_heaviest_party(&t, &client[0], 3));
    assert_ptr_equal(turns_heaviest_party(&t, &client[1], 3), &tasks[11]);
    assert_null(turns_heaviest_party(&t, &client[2], 0));
    assert_true(turns_has_none(&t, &party[2][0]) && !turns_has_none(&t, &party[0][2]));
}

/* How often each of those who wait was passed by another one of the same level: once at most. */
struct passes {
    int n[CLIENTS][CLIENTS];
};

static void note_pass(struct passes *p, int taken, int n, const bool *waits)
{
    for (int k = 0; k < n; k++) {
        p->n[k][taken] = waits[k] && k != taken ? p->n[k][taken] + 1 : 0;
        p->n[taken][k] = 0;
        assert_true(p->n[k][taken] <= 1);
    }
}

static void note_taken(struct passes *of_clients, struct passes *of_parties, const struct task *task)
{
    bool waits[CLIENTS] = {false};
    int c = (int)(task->ticket.client - client), p = (int)(task->ticket.party - party[c]);
    for (int k = 0; k < CLIENTS; k++)
        waits[k] = client[k].turn[TURN_LARGE].below != NULL;
    note_pass(of_clients, c, CLIENTS, waits);
    for (int k = 0; k < PARTIES; k++)
        waits[k] = party[c][k].turn[TURN_LARGE].first != NULL;
    note_pass(&of_parties[c], p, PARTIES, waits);
}

/* A client or party that joins comes at the end. */
static void note_join(struct passes *of_clients, struct passes *of_parties, int c, int p)
{
    if (client[c].turn[TURN_LARGE].below == NULL)
        memset(of_clients->n[c], 0, sizeof of_clients->n[c]);
    if (party[c][p].turn[TURN_LARGE].first == NULL)
        memset(of_parties[c].n[p], 0, sizeof of_parties[c].n[p]);
}

/* Nothing is lost, and a party's own tasks are taken in order. */
static void random_schedules(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 2000; seed++) {
        struct turns t = {.kind = TURN_LARGE};
        bool waits[JOBS] = {false};
        struct passes of_clients = {0}, of_parties[CLIENTS] = {0};
        int n = 0, sequences = 0;
        forget_all();
        srand(seed);
        for (int step = 0, made = 0; step < 120; step++) {
            int what = rand() % 5;
            struct task *task = NULL;
            if (what < 2 && made < JOBS) {
                int c = rand() % CLIENTS, p = rand() % PARTIES;
                note_join(&of_clients, of_parties, c, p);
                task = make_for(&t, made, c, p, 0, 1 + rand() % 8);
                waits[made++] = true;
                sequences += task->ticket.n_sequences;
                n++;
                continue;
            }
            if (what == 2 && made > 0) {
                int j = rand() % made;
                task = waits[j] ? &tasks[j] : NULL;
                if (task != NULL)
                    turns_remove(&t, task);
            } else {
                task = turns_take(&t);
                assert_int_equal(task == NULL, n == 0);
                for (int other = 0; task != NULL && other < (int)task->number; other++)
                    assert_false(waits[other] && tasks[other].ticket.party == task->ticket.party);
                if (task != NULL)
                    note_taken(&of_clients, of_parties, task);
            }
            if (task != NULL) {
                assert_true(waits[task->number]);
                waits[task->number] = false;
                sequences -= task->ticket.n_sequences;
                n--;
            }
            assert_int_equal(t.n, n);
            assert_int_equal(t.all.n_sequences, sequences);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns),   cmocka_unit_test(priorities), cmocka_unit_test(parties),
        cmocka_unit_test(fitting), cmocka_unit_test(heaviest),   cmocka_unit_test(random_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
