/* tests/unit/test_kept.c - data cached from one load of a model to its next one, by the identity of its files:
 * tokenizers on a shelf, the choices of decode steps in a book. */
#include "tests/unit/unit.h"

#include "commands/models/identity.h"
#include "commands/models/shelf.h"
#include "rank/step/step_ways.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Any change of a file changes the identity; without a change it stays. */
static void identities(void **state)
{
    (void)state;
    char dir[256], path[300], other[300];
    files_make_dir(dir);
    assert_int_equal(identity_of_folder("/nowhere"), 0);
    files_write_text(dir, "model.safetensors", "weights");
    assert_int_equal(identity_of_folder(dir), 0); /* no config.json */
    files_write_text(dir, "config.json", "{}");
    uint64_t first = identity_of_folder(dir), now;
    assert_true(first != 0 && identity_of_folder(dir) == first);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    (void)snprintf(other, sizeof other, "%s/other", dir);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    files_write_text(dir, "other", "weightS"); /* of the same size, with the old modification time */
    const struct timespec times[2] = {s.st_atim, s.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    assert_int_equal(rename(other, path), 0);
    now = identity_of_folder(dir);
    assert_true(now != 0 && now != first);
    files_write_text(dir, "tokenizer.json", "{}");
    assert_true(identity_of_folder(dir) != now);
    (void)snprintf(other, sizeof other, "%s/tokenizer.json", dir);
    assert_int_equal(unlink(other), 0);
    assert_true(identity_of_folder(dir) == now);
    assert_int_equal(truncate(path, 3), 0);
    assert_true(identity_of_folder(dir) != now);
    files_remove_dir(dir);
}

static struct shelved *make_shelved(const char *name, uint64_t identity)
{
    struct shelved *one = calloc(1, sizeof *one);
    assert_non_null(one);
    (void)snprintf(one->texts.name, sizeof one->texts.name, "%s", name);
    one->identity = identity;
    return one;
}

/* It had a user, and no longer has one. */
static void lay(struct shelf *s, struct shelved *one)
{
    shelf_add(s, one);
    shelf_put(s, one);
}

static void shelves(void **state)
{
    (void)state;
    struct shelf s;
    shelf_open(&s);
    shelf_put(&s, NULL);
    lay(&s, make_shelved("a", 0)); /* files of unknown identity: not kept */
    assert_null(shelf_take(&s, "a", 0));
    struct shelved *a = make_shelved("a", 7);
    lay(&s, a);
    assert_null(shelf_take(&s, "a", 8));
    assert_null(shelf_take(&s, "b", 7));
    assert_ptr_equal(shelf_take(&s, "a", 7), a);
    assert_ptr_equal(shelf_take(&s, "a", 7), a); /* two users */
    shelf_put(&s, a);
    assert_int_equal(s.n, 0);
    shelf_put(&s, a);
    assert_int_equal(s.n, 1);
    for (uint64_t i = 1; i < SHELF_TEXTS; i++)
        lay(&s, make_shelved("b", i));
    a = shelf_take(&s, "a", 7); /* used: now the youngest */
    assert_non_null(a);
    shelf_put(&s, a);
    lay(&s, make_shelved("c", 1));
    assert_null(shelf_take(&s, "b", 1)); /* unused for longest */
    assert_int_equal(s.n, SHELF_TEXTS);
    a = shelf_take(&s, "a", 7);
    assert_non_null(a);
    shelf_put(&s, a);
    shelf_close(&s);
}

static void book(void **state)
{
    (void)state;
    struct step_ways_book *b = calloc(1, sizeof *b);
    struct step_ways ways = {.measured = true, .way[4] = {true, 2e-3, 1e-3}};
    assert_non_null(b);
    assert_false(step_ways_find(b, 5).measured);
    step_ways_keep(b, 0, &ways);
    assert_false(step_ways_find(b, 0).measured);
    step_ways_keep(b, 5, &ways);
    assert_true(step_ways_find(b, 5).way[4].persistent);
    ways.way[4].persistent = false; /* written again: replaces the entry */
    step_ways_keep(b, 5, &ways);
    assert_int_equal(b->n, 1);
    assert_false(step_ways_find(b, 5).way[4].persistent);
    for (uint64_t i = 1; i < STEP_WAYS_MODELS; i++)
        step_ways_keep(b, 100 + i, &ways);
    assert_true(step_ways_find(b, 5).measured);
    step_ways_keep(b, 99, &ways);
    assert_false(step_ways_find(b, 5).measured); /* the oldest */
    assert_true(step_ways_find(b, 99).measured && step_ways_find(b, 101).measured);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identities),
        cmocka_unit_test(shelves),
        cmocka_unit_test(book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
