/* tests/unit/test_turns.c - the order of tasks: in turns between clients, by priority and arrival within one; random
 * schedules compared with a list that is searched each time. */
#include "coordinator/server/turns.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define CLIENTS 7
#define JOBS    40

static struct client client[CLIENTS];
static struct task task[JOBS];

static struct task *make(struct turns *t, int j, int c, int priority, int n_sequences)
{
    memset(&task[j], 0, sizeof task[j]);
    task[j].ticket.client = &client[c];
    task[j].number = (uint64_t)j;
    task[j].ticket.n_sequences = n_sequences;
    task[j].message.generate.priority = priority;
    turns_put(t, &task[j]);
    return &task[j];
}

static void turns(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_TEXTS};
    memset(client, 0, sizeof client);
    for (int j = 0; j < 10; j++) /* a flood from one client, then one task each from two others */
        make(&t, j, 0, 0, 1);
    make(&t, 10, 1, 0, 1);
    make(&t, 11, 2, 0, 1);
    static const int expected[] = {0, 10, 11, 1, 2};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_ptr_equal(turns_take(&t), &task[expected[i]]);
    make(&t, 12, 3, 0, 1); /* a later client is next after the one whose turn it is */
    assert_ptr_equal(turns_take(&t), &task[3]);
    assert_ptr_equal(turns_take(&t), &task[12]);
    assert_ptr_equal(turns_heaviest(&t, 5), &task[9]);
    assert_null(turns_heaviest(&t, 6));
    turns_remove(&t, &task[9]);
    for (int j = 4; j < 9; j++)
        assert_ptr_equal(turns_take(&t), &task[j]);
    assert_null(turns_take(&t));
    assert_int_equal(t.n, 0);
    assert_int_equal(t.n_sequences, 0);
}

static void priorities(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_REPLICA};
    memset(client, 0, sizeof client);
    static const int priority[] = {5, 1, 3, 1, 5, 0};
    for (int j = 0; j < 6; j++)
        make(&t, j, 0, priority[j], 1);
    make(&t, 6, 1, 9, 1); /* the other client's turn comes nevertheless */
    static const int expected[] = {5, 6, 1, 3, 2, 0, 4};
    for (size_t i = 0; i < 7; i++)
        assert_ptr_equal(turns_take(&t), &task[expected[i]]);
}

/* While a client waits, no other overtakes it more than once, and nothing is lost. */
static void random_schedules(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 2000; seed++) {
        struct turns t = {.kind = TURN_LARGE};
        bool waits[JOBS] = {false};
        int passed[CLIENTS][CLIENTS] = {{0}}, n = 0, sequences = 0;
        memset(client, 0, sizeof client);
        srand(seed);
        for (int step = 0, made = 0; step < 120; step++) {
            int what = rand() % 5;
            if (what < 2 && made < JOBS) {
                int who = rand() % CLIENTS;
                if (client[who].turn[TURN_LARGE].first == NULL) /* it joins at the end */
                    memset(passed[who], 0, sizeof passed[who]);
                struct task *j = make(&t, made, who, 0, 1 + rand() % 8);
                waits[made++] = true;
                sequences += j->ticket.n_sequences;
                n++;
            } else if (what == 2 && made > 0) {
                int j = rand() % made;
                if (!waits[j])
                    continue;
                turns_remove(&t, &task[j]);
                waits[j] = false;
                sequences -= task[j].ticket.n_sequences;
                n--;
            } else {
                struct task *j = turns_take(&t);
                assert_int_equal(j == NULL, n == 0);
                if (j == NULL)
                    continue;
                int c = (int)(j->ticket.client - client);
                assert_true(waits[j->number]);
                for (int other = 0; other < made; other++) /* a client's own tasks are taken in order */
                    assert_false(waits[other] && other < (int)j->number &&
                                 task[other].ticket.client == j->ticket.client);
                waits[j->number] = false;
                sequences -= j->ticket.n_sequences;
                n--;
                for (int k = 0; k < CLIENTS; k++) {
                    bool has = client[k].turn[TURN_LARGE].first != NULL;
                    passed[k][c] = has && k != c ? passed[k][c] + 1 : 0;
                    passed[c][k] = 0;
                    assert_true(passed[k][c] <= 1);
                }
            }
            assert_int_equal(t.n, n);
            assert_int_equal(t.n_sequences, sequences);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns),
        cmocka_unit_test(priorities),
        cmocka_unit_test(random_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
