/* tests/unit/test_host_pool.c - rank/step/host_pool.c: pieces of host memory are kept, zeroed, and never shared. */
#include "rank/step/host_pool.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static int n_taken, n_freed, n_left; /* n_left: allocations that still succeed */

static void *take_memory(struct queue *q, size_t bytes)
{
    if (n_left-- <= 0) {
        ERR(&q->err, ERR_MEMORY, "no more");
        return NULL;
    }
    n_taken++;
    return calloc(1, bytes);
}

static void give(struct queue *q, void *p)
{
    (void)q;
    n_freed += p != NULL;
    free(p);
}

static const struct async_ops async = {.host_alloc = take_memory, .host_free = give};
static const struct ops ops = {.async = &async};

static int setup(void **state)
{
    static struct host_pool pool;
    host_pool_open(&pool);
    n_taken = n_freed = 0;
    n_left = 1000;
    *state = &pool;
    return 0;
}

static int teardown(void **state)
{
    struct queue q = {0};
    host_pool_close(*state, &ops, &q);
    return n_taken == n_freed ? 0 : -1;
}

/* A returned piece serves the next request that needs no more; a larger request replaces it. */
static void kept(void **state)
{
    struct queue q = {0};
    char *a = host_pool_take(*state, 100, &ops, &q), *b = host_pool_take(*state, 300, &ops, &q);
    memset(a, 1, 100);
    memset(b, 1, 300);
    host_pool_give(*state, b);
    host_pool_give(*state, a);
    assert_ptr_equal(host_pool_take(*state, 80, &ops, &q), a); /* the smaller of those that are large enough */
    for (int i = 0; i < 80; i++)
        assert_int_equal(a[i], 0);
    assert_ptr_equal(host_pool_take(*state, 101, &ops, &q), b);
    host_pool_give(*state, b);
    assert_non_null(host_pool_take(*state, 301, &ops, &q));
    assert_int_equal(n_taken, 3);
    assert_int_equal(n_freed, 1);
}

static void short_of_memory(void **state)
{
    struct queue q = {0};
    void *a = host_pool_take(*state, 100, &ops, &q);
    n_left = 0;
    assert_null(host_pool_take(*state, 100, &ops, &q));
    assert_int_equal(q.err.code, ERR_MEMORY);
    host_pool_give(*state, NULL); /* from an engine that got none */
    host_pool_give(*state, a);
    assert_null(host_pool_take(*state, 200, &ops, &q)); /* a was replaced */
    n_left = 1;
    assert_non_null(host_pool_take(*state, 200, &ops, &q));
}

/* Models of all sizes come and go: none gets another one's piece, and there are as many pieces as models at once. */
static void at_random(void **state)
{
    struct queue q = {0};
    struct {
        unsigned char *memory;
        size_t bytes;
        unsigned char mark;
    } m[8] = {0};
    unsigned draw = 1;
    for (int round = 0; round < 4000; round++) {
        draw = draw * 1103515245u + 12345u;
        int i = (int)(draw >> 16 & 7);
        if (m[i].memory != NULL) {
            for (size_t k = 0; k < m[i].bytes; k++)
                assert_int_equal(m[i].memory[k], m[i].mark);
            host_pool_give(*state, m[i].memory);
            m[i].memory = NULL;
            continue;
        }
        m[i].bytes = 1 + (draw >> 20) % 200;
        m[i].mark = (unsigned char)(1 + i);
        m[i].memory = host_pool_take(*state, m[i].bytes, &ops, &q);
        assert_non_null(m[i].memory);
        for (size_t k = 0; k < m[i].bytes; k++)
            assert_int_equal(m[i].memory[k], 0);
        memset(m[i].memory, m[i].mark, m[i].bytes);
    }
    assert_true(n_taken - n_freed <= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kept, setup, teardown),
        cmocka_unit_test_setup_teardown(short_of_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(at_random, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
