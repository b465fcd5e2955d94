/* tests/unit/test_turns.c - the order of tasks: in turns between clients, by priority and arrival within one; random
 * schedules compared with a list that is searched each time. */
#include "coordinator/server/turns.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define CLIENTS 7
#define JOBS    40

static struct client client[CLIENTS];
static struct task tasks[JOBS];

static struct task *make_task(struct turns *t, int j, int c, int priority, int n_sequences)
{
    memset(&tasks[j], 0, sizeof tasks[j]);
    tasks[j].ticket.client = &client[c];
    tasks[j].number = (uint64_t)j;
    tasks[j].ticket.n_sequences = n_sequences;
    tasks[j].message.generate.priority = priority;
    turns_put(t, &tasks[j]);
    return &tasks[j];
}

static void turns(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_TEXTS};
    memset(client, 0, sizeof client);
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
    assert_int_equal(t.n_sequences, 0);
}

static void priorities(void **state)
{
    (void)state;
    struct turns t = {.kind = TURN_REPLICA};
    memset(client, 0, sizeof client);
    static const int priority[] = {5, 1, 3, 1, 5, 0};
    for (int j = 0; j < 6; j++)
        make_task(&t, j, 0, priority[j], 1);
    make_task(&t, 6, 1, 9, 1); /* the other client's turn comes nevertheless */
    static const int expected[] = {5, 6, 1, 3, 2, 0, 4};
    for (size_t i = 0; i < 7; i++)
        assert_ptr_equal(turns_take(&t), &tasks[expected[i]]);
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
                struct task *task = make_task(&t, made, who, 0, 1 + rand() % 8);
                waits[made++] = true;
                sequences += task->ticket.n_sequences;
                n++;
            } else if (what == 2 && made > 0) {
                int j = rand() % made;
                if (!waits[j])
                    continue;
                turns_remove(&t, &tasks[j]);
                waits[j] = false;
                sequences -= tasks[j].ticket.n_sequences;
                n--;
            } else {
                struct task *task = turns_take(&t);
                assert_int_equal(task == NULL, n == 0);
                if (task == NULL)
                    continue;
                int c = (int)(task->ticket.client - client);
                assert_true(waits[task->number]);
                for (int other = 0; other < made; other++) /* a client's own tasks are taken in order */
                    assert_false(waits[other] && other < (int)task->number &&
                                 tasks[other].ticket.client == task->ticket.client);
                waits[task->number] = false;
                sequences -= task->ticket.n_sequences;
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
