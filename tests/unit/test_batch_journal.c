/* tests/unit/test_batch_journal.c - coordinator/batch/journal.c: outputs after a crash, the lock for writing; disks and
 * readers that do not accept data. */
#include "tests/unit/unit.h"

#include "coordinator/batch/ids.h"
#include "coordinator/batch/journal.h"
#include "coordinator/batch/ordered.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct heard {
    char text[200];
};

static bool on_line(void *context, const char *line, size_t bytes, int64_t offset, struct err *e)
{
    struct heard *h = context;
    size_t used = strlen(h->text);
    (void)e;
    (void)snprintf(h->text + used, sizeof h->text - used, "%lld:%.*s ", (long long)offset, (int)bytes, line);
    return bytes > 0 && line[0] != '!';
}

#define READER(h) (&(const struct journal_reader){"[", on_line, (h)})

static void expect_recovered(const char *text, size_t n, int64_t trusted, const char *heard, int64_t cut)
{
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t found = -1;
    size_t bytes, left = n - (size_t)cut;
    files_write(folder, "journal", text, n);
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, trusted, READER(&h), &found, &e), 0);
    assert_string_equal(h.text, heard);
    assert_int_equal(found, cut);
    assert_int_equal(j.bytes, left);
    assert_int_equal(j.unsynced, trusted < (int64_t)left ? (int64_t)left - trusted : 0);
    assert_int_equal(journal_append(&j, "new\n", 4, 1, &e), 0);
    assert_int_equal(journal_sync(&j, &e), 0);
    assert_int_equal(j.unsynced, 0);
    journal_close(&j);
    char *now = files_read(folder, "journal", &bytes);
    assert_int_equal(bytes, left + 4);
    assert_memory_equal(now, text, left);
    assert_string_equal(now + left, "new\n");
    free(now);
}

#define RECOVERED(text, ...) expect_recovered((text), sizeof(text) - 1, __VA_ARGS__)

/* Expects a refusal, and an unchanged file. */
static void expect_kept(const char *text, size_t n, int64_t trusted, const char *part)
{
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t cut;
    size_t bytes;
    files_write(folder, "journal", text, n);
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, trusted, READER(&h), &cut, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, part);
    journal_close(&j);
    char *now = files_read(folder, "journal", &bytes);
    assert_int_equal(bytes, n);
    assert_memory_equal(now, text, n);
    free(now);
}

#define KEPT(text, ...) expect_kept((text), sizeof(text) - 1, __VA_ARGS__)

static void recovered(void **state)
{
    (void)state;
    RECOVERED("", 0, "", 0);
    RECOVERED("[1]\n[22]\n", 9, "0:[1] 4:[22] ", 0);
    RECOVERED("[1]\n[22]\n[al", 0, "0:[1] 4:[22] ", 3);
    RECOVERED("[al", 0, "", 3);
    /* after a power failure: everything from the hole on is dropped, whatever follows it */
    RECOVERED("[1]\n\0\0\n[3]\n", 4, "0:[1] ", 7);
    RECOVERED("[1]\n[\0\0]\n[3]\n", 4, "0:[1] ", 9);
    RECOVERED("[1]\n\0\0\0", 4, "0:[1] ", 3);
    /* a file of another origin */
    KEPT("[1]\n!\n[3]\n", 4, "line 2 is not a result");
    KEPT("[1]\n\n[3]\n", 4, "line 2 is not a result");
    KEPT("[1]\n!\0\n[3]\n", 5, "line 2 is not a result");
    KEPT("some notes\nof somebody\n", 0, "line 1 is not a result");
    KEPT("a note", 0, "line 1 is not a result");
    KEPT("[1]\n[2\n", 4, "line 2 is not a result");
    /* damage of the part that was on disk: a quote, half a character, a missing newline */
    KEPT("[1]\n[2\"]\n[3]\n", 13, "line 2 is not a result");
    KEPT("[1]\n[\"\xff\"]\n[3]\n", 14, "line 2 is not a result");
    KEPT("[1]\n[2][3]\n", 11, "line 2 is not a result");
}

/* The next run knows which part is on disk: each of its bytes counts, and lines covered by the hash are not parsed. */
static void checked(void **state)
{
    (void)state;
    static const char text[] = "[1]\n[22]\n[333]\n";
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t cut;
    (void)unlink(folder_path("journal"));
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_append(&j, text, sizeof text - 1, 1, &e), 0);
    assert_null(j.synced);
    assert_int_equal(journal_sync(&j, &e), 0);
    json_t *was = json_incref(j.synced);
    assert_int_equal(journal_append(&j, "[4]\n", 4, 1, &e), 0);
    assert_true(json_equal(was, j.synced)); /* the synced part */
    journal_close(&j);
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_check(&j, was, &e), 0);
    assert_int_equal(j.intact, sizeof text - 1);
    assert_int_equal(journal_recover(&j, (int64_t)sizeof text - 1, READER(&h), &cut, &e), 0);
    assert_int_equal(journal_sync(&j, &e), 0);
    json_t *all = json_incref(j.synced);
    journal_close(&j);
    for (size_t i = 0; i < sizeof text - 1; i++) { /* the damaged line may still be JSON */
        char damaged[sizeof text + 4] = "[1]\n[22]\n[333]\n[4]\n";
        damaged[i] ^= 1;
        files_write(folder, "journal", damaged, sizeof text + 3);
        e = (struct err){0};
        assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
        assert_int_equal(journal_check(&j, was, &e), -1);
        EXPECT_PARTS(&e, ERR_INPUT, "lines 1 to", "--force");
        journal_close(&j);
    }
    files_write(folder, "journal", text,
                sizeof text - 1); /* a shorter file: missing lines run again, existing ones are parsed */
    e = (struct err){0};
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_check(&j, all, &e), 0);
    assert_int_equal(j.intact, 0);
    journal_close(&j);
    json_decref(was);
    json_decref(all);
}

/* --force on a file without a record. */
static void recovered_foreign(void **state)
{
    (void)state;
    RECOVERED("", JOURNAL_FOREIGN, "", 0);
    KEPT("[al", JOURNAL_FOREIGN, "not contain results of a batch");
    KEPT("a note", JOURNAL_FOREIGN, "line 1 is not a result");
    KEPT("[1]\na note", JOURNAL_FOREIGN, "line 2 is not a result");
    KEPT("[1]\n!\n", JOURNAL_FOREIGN, "line 2 is not a result");
    KEPT("[1]\n\0\n", JOURNAL_FOREIGN, "line 2 is not a result");
    KEPT("!\n", JOURNAL_FOREIGN, "line 1 is not a result");
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t cut;
    files_write(folder, "journal", "[1]\n[2", 6);
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, JOURNAL_FOREIGN, READER(&h), &cut, &e), 0);
    assert_true(cut == 2 && j.unsynced == 4); /* not known to be on disk */
    journal_close(&j);
}

/* Lines larger than a block span several blocks. */
static void recovered_long(void **state)
{
    (void)state;
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t cut;
    size_t bytes = 5 << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    text[1000] = text[(3 << 20) + 7] = '\n';
    text[0] = text[1001] = text[(3 << 20) + 8] = '[';
    text[999] = text[(3 << 20) + 6] = ']';
    files_write(folder, "journal", text, bytes);
    free(text);
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, 0, READER(&h), &cut, &e), 0);
    assert_int_equal(j.bytes, (3 << 20) + 8);
    assert_int_equal(cut, bytes - (size_t)j.bytes);
    journal_close(&j);
}

/* After a failed sync the next one would succeed without having written anything. */
static void failed_sync(void **state)
{
    (void)state;
    struct journal j;
    struct err e = {0};
    int pipes[2], kept;
    assert_int_equal(journal_open(&j, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_append(&j, "[]\n", 3, 1, &e), 0);
    assert_int_equal(pipe(pipes), 0);
    kept = dup(j.fd);
    assert_int_equal(dup2(pipes[1], j.fd), j.fd); /* pipes cannot be synced */
    assert_int_equal(journal_sync(&j, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "cannot be synced");
    e = (struct err){0};
    assert_int_equal(dup2(kept, j.fd), j.fd);
    assert_int_equal(journal_sync(&j, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "an earlier sync has failed");
    assert_int_equal(j.unsynced, 3);
    journal_close(&j);
    (void)close(kept);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void one_writer(void **state)
{
    (void)state;
    struct journal a, b;
    struct err e = {0};
    assert_int_equal(journal_open(&a, folder_path("journal"), 0, &e), 0);
    assert_int_equal(journal_open(&b, folder_path("journal"), 0, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "another batch is writing");
    journal_close(&b);
    journal_close(&a);
    e = (struct err){0};
    assert_int_equal(journal_open(&b, folder_path("journal"), 0, &e), 0);
    journal_close(&b);
    assert_int_equal(journal_open(&b, folder_path("no/such/folder"), 0, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "cannot open", "No such file");
    journal_close(&b);
}

static void *wait_for_journal(void *context)
{
    struct err e = {0};
    (void)journal_open(context, folder_path("journal"), 60, &e);
    return NULL;
}

/* Tells whether this process has opened the file this many times. */
static bool opened(const char *path, int times)
{
    char found[600], name[64];
    for (int fd = 0; fd < 256; fd++) {
        (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, found, sizeof found - 1);
        times -= n > 0 && (size_t)n == strlen(path) && memcmp(found, path, (size_t)n) == 0;
    }
    return times <= 0;
}

/* A batch waits for the lock while its holder replaces the file: it gets the new one. */
static void replaced(void **state)
{
    (void)state;
    struct journal a, b, c;
    struct ids ids;
    struct err e = {0};
    pthread_t waiter;
    size_t bytes;
    char path[600];
    (void)snprintf(path, sizeof path, "%s", folder_path("journal"));
    assert_int_equal(ids_open(&ids, &e), 0);
    assert_int_equal(journal_open(&a, path, 0, &e), 0);
    assert_int_equal(journal_append(&a, "a\n", 2, 0, &e), 0);
    ids_get(&ids, "a", &e)->offset = 0;
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_journal, &b), 0);
    while (!opened(path, 2))
        (void)sched_yield();
    assert_int_equal(ordered_rewrite(&a, &ids, &e), 0);
    assert_int_equal(journal_open(&c, path, 0, &e), -1); /* the new file is locked, too */
    EXPECT_PARTS(&e, ERR_IO, "another batch is writing");
    journal_close(&c);
    e = (struct err){0};
    journal_close(&a);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_true(b.fd >= 0 && b.bytes == 2);
    assert_int_equal(journal_append(&b, "b\n", 2, 0, &e), 0);
    journal_close(&b);
    ids_close(&ids);
    char *now = files_read(folder, "journal", &bytes);
    assert_string_equal(now, "a\nb\n");
    free(now);
}

static void full_device(void **state)
{
    (void)state;
    struct journal j;
    struct err e = {0};
    assert_int_equal(journal_open(&j, "/dev/full", 0, &e), 0);
    assert_false(j.is_file);
    assert_int_equal(journal_append(&j, "x\n", 2, 0, &e), -1);
    expect_text(&e, ERR_IO, "/dev/full: cannot write: No space left on device");
    assert_int_equal(journal_pending_lines(&j), 0); /* it was not appended */
    journal_close(&j);
}

/* A stalled reader: appending never waits, whether the pipe blocks or not, and everything arrives in the end. */
static void stalled_reader(void **state)
{
    (void)state;
    static char line[5000], read_back[1 << 20];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int flags = 0; flags <= O_NONBLOCK; flags += O_NONBLOCK) {
        struct journal j = {.path = "pipe"};
        struct err e = {0};
        size_t held = 0;
        int end[2];
        assert_int_equal(pipe(end), 0);
        assert_int_equal(fcntl(end[1], F_SETFL, flags), 0);
        j.fd = end[1];
        for (int i = 0; i < 100; i++)
            assert_int_equal(journal_append(&j, line, sizeof line, 0, &e), 0);
        assert_true(j.n_pending > 100000);
        assert_in_range(journal_pending_lines(&j), j.n_pending / sizeof line, j.n_pending / sizeof line + 1);
        assert_int_equal(journal_flush(&j, &e), 0);
        for (ssize_t n = 1; held < 100 * sizeof line && n > 0; held += (size_t)n) {
            n = read(end[0], read_back + held, sizeof read_back - held);
            assert_int_equal(journal_flush(&j, &e), 0);
        }
        assert_int_equal(held, 100 * sizeof line);
        assert_int_equal(j.n_pending, 0);
        for (int i = 0; i < 100; i++)
            assert_memory_equal(read_back + (size_t)i * sizeof line, line, sizeof line);
        expect_none(&e);
        journal_close(&j);
        (void)close(end[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(recovered),      FOLDER_TEST(checked),    FOLDER_TEST(recovered_foreign),
        FOLDER_TEST(recovered_long), FOLDER_TEST(one_writer), FOLDER_TEST(full_device),
        FOLDER_TEST(stalled_reader), FOLDER_TEST(replaced),   FOLDER_TEST(failed_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
