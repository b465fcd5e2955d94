/* tests/unit/test_log_writer.c - base/log_writer.c: a thread that logs a line never waits, written lines are complete
 * and in order, lost lines are counted. */
#include "tests/unit/unit.h"

#include "base/clock.h"
#include "base/log_writer.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 1000

static void put_line(struct log_writer *w, int number)
{
    char *text = malloc(LINE_BYTES + 1);
    (void)snprintf(text, LINE_BYTES + 1, "%0*d\n", LINE_BYTES - 1, number);
    log_writer_put(w, text, LINE_BYTES);
}

static void writes_in_order(void **state)
{
    (void)state;
    char folder[256], path[300];
    struct log_writer *w = NULL;
    struct err e = {0};
    size_t bytes = 0;
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/log", folder);
    assert_int_equal(log_writer_open(&w, open(path, O_WRONLY | O_CREAT | O_APPEND, 0600), "a log", &e), 0);
    for (int i = 0; i < 3000; i++)
        put_line(w, i);
    uint64_t lost = log_writer_lost(w);
    log_writer_close(&w);
    assert_null(w);
    char *text = files_read(folder, "log", &bytes);
    assert_int_equal(lost, 0);
    assert_int_equal(bytes, 3000 * LINE_BYTES);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(atoi(text + (size_t)i * LINE_BYTES), i);
    free(text);
    files_remove_dir(folder);
}

/* 64 KiB fit into the pipe, 4 MiB wait, others are lost at once; waiting lines arrive in order once there is a
 * reader. */
static void pipe_that_nobody_reads(void **state)
{
    (void)state;
    enum { N = 10000, WAITING = (int)(LOG_WRITER_BYTES / LINE_BYTES) - 1 };
    struct log_writer *w = NULL;
    struct err e = {0};
    int end[2];
    char line[LINE_BYTES];
    assert_int_equal(pipe(end), 0);
    assert_int_equal(log_writer_open(&w, end[1], "a log", &e), 0);
    double started = seconds_now();
    for (int i = 0; i < N; i++)
        put_line(w, i);
    assert_true(process_in_time(seconds_now() - started, 2));
    int kept = N - (int)log_writer_lost(w);
    assert_true(kept >= WAITING && kept < N / 2 + 100);
    for (int i = 0, last = -1; i < kept; i++) {
        for (size_t done = 0; done < LINE_BYTES;) {
            ssize_t n = read(end[0], line + done, LINE_BYTES - done);
            assert_true(n > 0);
            done += (size_t)n;
        }
        assert_true(atoi(line) > last && atoi(line) < N);
        assert_true(i >= WAITING || atoi(line) == i); /* the first ones were kept */
        last = atoi(line);
    }
    put_line(w, N);
    assert_int_equal(read(end[0], line, LINE_BYTES), LINE_BYTES);
    assert_int_equal(atoi(line), N);
    assert_int_equal(log_writer_lost(w), N - kept);
    log_writer_close(&w);
    (void)close(end[0]);
}

static void ends_though_nobody_reads(void **state)
{
    (void)state;
    struct log_writer *w = NULL;
    struct err e = {0};
    int end[2];
    assert_int_equal(pipe(end), 0);
    assert_int_equal(log_writer_open(&w, end[1], "a log", &e), 0);
    for (int i = 0; i < 1000; i++)
        put_line(w, i);
    double started = seconds_now();
    log_writer_close(&w);
    assert_true(process_in_time(seconds_now() - started, 5));
    (void)close(end[0]);
}

static void full_disk(void **state)
{
    (void)state;
    struct log_writer *w = NULL;
    struct err e = {0};
    assert_int_equal(log_writer_open(&w, open("/dev/full", O_WRONLY), "a log", &e), 0);
    put_line(w, 1);
    put_line(w, 2);
    double until = seconds_now() + process_patience(10);
    while (log_writer_lost(w) < 2 && seconds_now() < until)
        continue;
    assert_int_equal(log_writer_lost(w), 2);
    log_writer_put(w, NULL, 0); /* out of memory: another lost line */
    assert_int_equal(log_writer_lost(w), 3);
    log_writer_close(&w);
}

/* A file that may grow to this many bytes acts as a disk that fills up within a line: that line is lost, and no other
 * once there is room. */
static void torn_line(void **state)
{
    (void)state;
    char folder[256], path[300];
    struct log_writer *w = NULL;
    struct err e = {0};
    struct rlimit before, small;
    size_t bytes = 0;
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/log", folder);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = LINE_BYTES + LINE_BYTES / 2;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(log_writer_open(&w, open(path, O_WRONLY | O_CREAT | O_APPEND, 0600), "a log", &e), 0);
    for (int i = 0; i < 3; i++)
        put_line(w, i);
    for (double until = seconds_now() + process_patience(10); log_writer_lost(w) < 2 && seconds_now() < until;)
        continue;
    assert_int_equal(log_writer_lost(w), 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    put_line(w, 3);
    put_line(w, 4);
    log_writer_close(&w);
    (void)signal(SIGXFSZ, handler);
    char *text = files_read(folder, "log", &bytes), *at = text + small.rlim_cur;
    assert_int_equal(bytes, 3 * LINE_BYTES + LINE_BYTES / 2 + 1);
    assert_int_equal(*at, '\n');
    assert_int_equal(atoi(at + 1), 3);
    assert_int_equal(atoi(at + 1 + LINE_BYTES), 4);
    free(text);
    files_remove_dir(folder);
}

static int open_log(const char *path, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return fd >= 0 ? fd : ERR(e, ERR_IO, "%s: cannot open", path);
}

/* Rotation: lines that come a second after the file was moved are in a new one. If that cannot be opened, they go to
 * the old one. */
static void moved_file(void **state)
{
    (void)state;
    char folder[256], path[300], moved[300], gone[300];
    struct log_writer *w = NULL;
    struct err e = {0};
    size_t bytes = 0;
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/logs/log", folder);
    (void)snprintf(moved, sizeof moved, "%s/logs/log.1", folder);
    (void)snprintf(gone, sizeof gone, "%s/logs", folder);
    assert_int_equal(mkdir(gone, 0700), 0);
    assert_int_equal(log_writer_open_path(&w, path, open_log, "a log", &e), 0);
    put_line(w, 1);
    (void)usleep(1200000);
    assert_int_equal(rename(path, moved), 0);
    put_line(w, 2);
    for (double until = seconds_now() + process_patience(10); access(path, F_OK) != 0 && seconds_now() < until;)
        (void)usleep(1000);
    (void)snprintf(moved, sizeof moved, "%s/away", folder);
    assert_int_equal(rename(gone, moved), 0);
    (void)usleep(1200000);
    put_line(w, 3);
    log_writer_close(&w);
    char *text = files_read(folder, "away/log.1", &bytes);
    assert_int_equal(bytes, LINE_BYTES);
    assert_int_equal(atoi(text), 1);
    free(text);
    text = files_read(folder, "away/log", &bytes);
    assert_int_equal(bytes, 2 * LINE_BYTES);
    assert_int_equal(atoi(text), 2);
    assert_int_equal(atoi(text + LINE_BYTES), 3);
    free(text);
    files_remove_dir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_in_order),
        cmocka_unit_test(pipe_that_nobody_reads),
        cmocka_unit_test(ends_though_nobody_reads),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(torn_line),
        cmocka_unit_test(moved_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
