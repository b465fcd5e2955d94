/* tests/unit/test_batch_rewrite.c - coordinator/batch/rewrite.c: an output rewritten in the order of the input
 * (ordered.c), or without its errors (retry.c). */
#include "tests/unit/unit.h"

#include "coordinator/batch/ids.h"
#include "coordinator/batch/journal.h"
#include "coordinator/batch/ordered.h"
#include "coordinator/batch/retry.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void ordered(void **state)
{
    (void)state;
    static const char *const line[] = {"c 3\n", "gone\n", "a 1\n", "b 2\n"};
    static const uint64_t position[] = {5, 0, 1, 2};
    struct journal j;
    struct ids ids;
    struct err e = {0};
    size_t bytes, big = 200000;
    char *text = malloc(big);
    memset(text, 'x', big);
    text[big - 1] = '\n';
    assert_int_equal(ids_open(&ids, &e), 0);
    files_write(folder, "real", "", 0);
    assert_int_equal(symlink("real", folder_path("out")), 0);
    assert_int_equal(chmod(folder_path("real"), 0640), 0);
    assert_int_equal(journal_open(&j, folder_path("out"), 0, &e), 0);
    for (int i = 0; i < 4; i++) {
        struct id_entry *entry = ids_get(&ids, line[i], &e);
        *entry = (struct id_entry){{entry->key[0], entry->key[1]}, position[i], j.bytes};
        assert_int_equal(journal_append(&j, line[i], strlen(line[i]), 0, &e), 0);
    }
    struct id_entry *entry = ids_get(&ids, "big", &e);
    entry->position = 3;
    entry->offset = j.bytes;
    assert_int_equal(journal_append(&j, text, big, 0, &e), 0);
    (void)ids_get(&ids, "without a result", &e);
    assert_int_equal(ordered_rewrite(&j, &ids, &e), 0);
    expect_none(&e);
    journal_close(&j);
    ids_close(&ids);
    struct stat st;
    assert_true(lstat(folder_path("out"), &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(stat(folder_path("out"), &st) == 0 && (st.st_mode & 07777) == 0640);
    char *now = files_read(folder, "real", &bytes);
    assert_int_equal(bytes, 8 + big + 9);
    assert_memory_equal(now, "a 1\nb 2\n", 8);
    assert_memory_equal(now + 8, text, big);
    assert_memory_equal(now + 8 + big, "c 3\ngone\n", 9);
    free(now);
    free(text);
}

static const char with_errors[] =
    "{\"id\":\"a\",\"text\":\"x\"}\n"
    "{\"id\":\"b\",\"error\":{\"code\":400}}\n"
    "{\"id\":\"batch_req_1\",\"custom_id\":\"c\",\"response\":{\"status_code\":500,\"body\":null}}\n"
    "{\"id\":\"batch_req_2\",\"custom_id\":7,\"response\":{\"status_code\":200,\"body\":{}}}\n";

/* Errors are removed, other results stay accessible, and the file can be resumed. */
static void errors_taken_out(void **state)
{
    (void)state;
    static const char kept[] =
        "{\"id\":\"a\",\"text\":\"x\"}\n"
        "{\"id\":\"batch_req_2\",\"custom_id\":7,\"response\":{\"status_code\":200,\"body\":{}}}\n";
    static const struct {
        const char *id;
        int64_t offset;
    } expected[] = {{"a", 0}, {"b", -1}, {"c", -1}, {"7", 22}};
    struct journal j;
    struct ids ids;
    struct err e = {0};
    int64_t n_kept = 0;
    size_t bytes;
    assert_int_equal(ids_open(&ids, &e), 0);
    for (size_t i = 0; i < 4; i++)
        ids_get(&ids, expected[i].id, &e)->offset = 5;
    files_write(folder, "out", with_errors, sizeof with_errors - 1);
    assert_int_equal(journal_open(&j, folder_path("out"), 0, &e), 0);
    assert_int_equal(retry_take_out(&j, &ids, &n_kept, &e), 0);
    assert_int_equal(n_kept, 2);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(ids_get(&ids, expected[i].id, &e)->offset, expected[i].offset);
    assert_int_equal(j.bytes, sizeof kept - 1);
    assert_int_equal(journal_append(&j, "[]\n", 3, 0, &e), 0);
    assert_int_equal(journal_sync(&j, &e), 0);
    journal_close(&j);
    ids_close(&ids);
    char *now = files_read(folder, "out", &bytes);
    assert_int_equal(bytes, sizeof kept + 2);
    assert_memory_equal(now, kept, sizeof kept - 1);
    assert_memory_equal(now + sizeof kept - 1, "[]\n", 3);
    free(now);
    assert_int_not_equal(access(folder_path("out.rewrite.tmp"), F_OK), 0);
}

/* Remains of a run that was killed while rewriting are harmless; a failed write leaves everything unchanged. */
static void rewriting_fails(void **state)
{
    (void)state;
    struct journal j;
    struct ids ids;
    int64_t n_kept = 0;
    size_t bytes;
    files_write(folder, "out", with_errors, sizeof with_errors - 1);
    for (int full = 1; full >= 0; full--) {
        struct rlimit was, few;
        struct err e = {0};
        assert_int_equal(ids_open(&ids, &e), 0);
        assert_int_equal(journal_open(&j, folder_path("out"), 0, &e), 0);
        files_write(folder, "out.rewrite.tmp", "half a li", 9);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
        few = (struct rlimit){50, was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, full ? &few : &was), 0);
        assert_int_equal(retry_take_out(&j, &ids, &n_kept, &e), full ? -1 : 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        if (full)
            EXPECT_PARTS(&e, ERR_IO, "out: cannot be cleared of errors: File too large; it is unchanged");
        else
            expect_none(&e);
        assert_int_not_equal(access(folder_path("out.rewrite.tmp"), F_OK), 0);
        journal_close(&j);
        ids_close(&ids);
        char *now = files_read(folder, "out", &bytes);
        assert_int_equal(bytes == sizeof with_errors - 1, full);
        free(now);
    }
}

int main(void)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* as in main.c */
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(errors_taken_out),
        FOLDER_TEST(rewriting_fails),
        FOLDER_TEST(ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
