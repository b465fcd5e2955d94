/* tests/unit/test_batch_ids.c - coordinator/batch/ids.c: every id with its position in the input and in the output. */
#include "tests/unit/unit.h"

#include "coordinator/batch/ids.h"

#include <stdio.h>

static void many_ids(void **state)
{
    (void)state;
    struct ids t;
    struct err e = {0};
    char id[32];
    assert_int_equal(ids_open(&t, &e), 0);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 20000; i++) {
            (void)snprintf(id, sizeof id, "id-%d", i);
            struct id_entry *entry = ids_get(&t, id, &e);
            assert_non_null(entry);
            assert_int_equal(entry->offset, pass == 0 ? -1 : i);
            assert_int_equal(entry->position, pass == 0 ? 0 : ids_position(i % 100, i + 1));
            entry->offset = i;
            entry->position = ids_position(i % 100, i + 1);
        }
    assert_int_equal(t.n, 20000);
    assert_int_equal(ids_file(ids_position(99, 12345)), 99);
    assert_int_equal(ids_line(ids_position(99, 12345)), 12345);
    assert_true(ids_position(1, 1) > ids_position(0, INT64_C(1) << 43));
    ids_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
