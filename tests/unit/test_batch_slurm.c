/* tests/unit/test_batch_slurm.c - coordinator/batch/slurm.c and child.c: the commands to scontrol, for which a stand-in
 * records its arguments, and the timeout of every command. */
#include "tests/unit/unit.h"

#include "base/clock.h"
#include "coordinator/batch/slurm.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[256];

/* Installs this script as scontrol; $D is the folder. */
static void install(const char *script)
{
    char path[300], text[1000];
    (void)snprintf(text, sizeof text, "#!/bin/sh\nD=%s\n%s\n", dir, script);
    files_write(dir, "scontrol", text, strlen(text));
    (void)snprintf(path, sizeof path, "%s/scontrol", dir);
    assert_int_equal(chmod(path, 0755), 0);
}

static int set_up(void **unused)
{
    char path[5000];
    (void)unused;
    files_make_dir(dir);
    (void)snprintf(path, sizeof path, "%s:%s", dir, getenv("PATH"));
    return setenv("PATH", path, 1);
}

static int tear_down(void **unused)
{
    (void)unused;
    files_remove_dir(dir);
    return 0;
}

static void jobs(void **unused)
{
    (void)unused;
    struct slurm_job j;
    struct err e = {0};
    assert_int_equal(slurm_job_open(&j, &(struct slurm_environment){"123", NULL, NULL, "2"}, "--x", &e), 0);
    assert_string_equal(j.id, "123");
    assert_int_equal(j.restarts, 2);
    /* The last task of an array has the array's number, which alone would name all tasks. */
    assert_int_equal(slurm_job_open(&j, &(struct slurm_environment){"123", "123", "7", NULL}, "--x", &e), 0);
    assert_string_equal(j.id, "123_7");
    assert_int_equal(j.restarts, 0);
    assert_int_equal(slurm_job_open(&j, &(struct slurm_environment){NULL, NULL, NULL, NULL}, "--x", &e), -1);
    assert_non_null(strstr(e.text, "--x"));
    static const struct slurm_environment bad[] = {{"12;rm", NULL, NULL, NULL},
                                                   {"", NULL, NULL, NULL},
                                                   {"12", NULL, NULL, "x"},
                                                   {"12", NULL, "3", NULL},
                                                   {"12", "12", "$(x)", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        e = (struct err){0};
        assert_int_equal(slurm_job_open(&j, &bad[i], "--x", &e), -1);
        assert_int_equal(e.code, ERR_USAGE);
    }
}

static void obstacles(void **unused)
{
    (void)unused;
    const struct slurm_job j = {.id = "1", .restarts = 3};
    assert_null(slurm_requeue_obstacle(&j, 4, 1, false));
    assert_non_null(strstr(slurm_requeue_obstacle(&j, 3, 1, false), "--max-restarts"));
    assert_non_null(strstr(slurm_requeue_obstacle(&j, 4, 0, false), "no result"));
    assert_non_null(strstr(slurm_requeue_obstacle(&j, 4, 1, true), "SIGTERM"));
}

static void requeues(void **unused)
{
    (void)unused;
    const struct slurm_job j = {.id = "123_7"};
    struct err e = {0};
    install("echo \"$#:$*\" > $D/said; ls /proc/self/fd | wc -l > $D/files; cut -d' ' -f5 /proc/self/stat > $D/group; "
            "exit 0");
    assert_int_equal(slurm_requeue(&j, &e), 0);
    size_t bytes;
    char *said = files_read(dir, "said", &bytes), *files = files_read(dir, "files", &bytes),
         *replica = files_read(dir, "group", &bytes);
    assert_string_equal(said, "2:requeue 123_7\n");
    assert_true(atoi(files) <= 4); /* three, and the one that ls opens */
    assert_int_not_equal(atoi(replica), getpgrp());
    free(said);
    free(files);
    free(replica);
    install("exit 3");
    assert_int_equal(slurm_requeue(&j, &e), -1);
    assert_non_null(strstr(e.text, "status 3"));
}

static void no_scontrol(void **unused)
{
    (void)unused;
    struct child c;
    struct err e = {0};
    const char *const argv[] = {"no-such-program-here", NULL};
    assert_int_equal(child_start(&c, argv, seconds_now(), 1, &e), -1);
    assert_non_null(strstr(e.text, "no-such-program-here"));
    assert_int_equal(c.pid, 0);
    (void)child_wait(&c);
}

static void a_child_that_hangs(void **unused)
{
    (void)unused;
    struct child c;
    struct err e = {0};
    const char *const argv[] = {"sleep", "1000", NULL};
    int status = 0;
    double began = seconds_now();
    assert_int_equal(child_start(&c, argv, began, 0.2, &e), 0);
    pid_t pid = c.pid;
    assert_false(child_ended(&c, began, &status));
    assert_int_equal(child_wait(&c), 128 + SIGKILL);
    assert_true(process_in_time(seconds_now() - began, 5)); /* instead of 1000 */
    assert_int_equal(kill(pid, 0), -1);                     /* and it was reaped */
    assert_int_equal(child_start(&c, argv, seconds_now(), 1000, &e), 0);
    pid = c.pid;
    c.until = seconds_now();
    assert_int_equal(child_wait(&c), 128 + SIGKILL);
    assert_int_equal(kill(pid, 0), -1);
}

/* The child does not inherit signals that Lockstep ignores or blocks. */
static void usual_signals(void **unused)
{
    (void)unused;
    struct child c;
    struct err e = {0};
    sigset_t blocked, before;
    const char *const argv[] = {"sh", "-c", "kill -PIPE $$; exit 0", NULL};
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGPIPE);
    (void)sigprocmask(SIG_BLOCK, &blocked, &before);
    assert_int_equal(child_start(&c, argv, seconds_now(), 10, &e), 0);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(child_wait(&c), 128 + SIGPIPE);
}

static void comments(void **unused)
{
    (void)unused;
    const struct slurm_job j = {.id = "5"};
    struct slurm_comment c = {.job = &j}, none = {0};
    double now = seconds_now();
    install("printf '%s|' \"$@\" > $D/said");
    assert_false(slurm_comment_due(&none, now));
    assert_true(slurm_comment_due(&c, now));
    slurm_comment_set(&c, "done=1/2 it's \"so\"\nhere", now);
    assert_false(slurm_comment_due(&c, now + 1));
    (void)child_wait(&c.child);
    size_t bytes;
    char *said = files_read(dir, "said", &bytes);
    assert_string_equal(said, "update|JobId=5|Comment=done=1/2 it s  so  here|");
    free(said);
    assert_false(slurm_comment_due(&c, now + 59));
    assert_true(slurm_comment_due(&c, now + 60));
    install("exec sleep 1000");
    slurm_comment_set(&c, "x", now + 60);
    assert_false(slurm_comment_due(&c, now + 61));
    pid_t pid = c.child.pid;
    double began = seconds_now();
    slurm_comment_close(&c);
    assert_true(process_in_time(seconds_now() - began, 5)); /* instead of 1000 */
    assert_int_equal(kill(pid, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs),
        cmocka_unit_test(obstacles),
        cmocka_unit_test_setup_teardown(requeues, set_up, tear_down),
        cmocka_unit_test(no_scontrol),
        cmocka_unit_test(a_child_that_hangs),
        cmocka_unit_test(usual_signals),
        cmocka_unit_test_setup_teardown(comments, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
