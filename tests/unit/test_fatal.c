/* tests/unit/test_fatal.c - the end of a single rank: one line, the status, and additional lines on request.
 * tests/fail/ tests the end of several ranks. */
#include "tests/unit/unit.h"

#include "rank/world/fatal.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct outcome {
    char text[200]; /* standard error, then any additional lines */
    int status;
};

static void say(void *context, const struct err *why)
{
    if (why->code != ERR_DEVICE || strcmp(why->text, "the device is gone") != 0)
        _exit(99);
    (void)!write(STDERR_FILENO, context, strlen(context));
}

/* Runs in a child process. word: printed at the end, or NULL. */
static void end_in_child(struct outcome *o, const char *word)
{
    int fd[2], status = 0;
    struct err e = {0};
    *o = (struct outcome){0};
    assert_int_equal(pipe(fd), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(fd[1], STDERR_FILENO);
        ERR(&e, ERR_DEVICE, "the device is gone");
        fatal_farewell(word != NULL ? say : NULL, (void *)(uintptr_t)word);
        fatal(&e);
    }
    (void)close(fd[1]);
    for (ssize_t n = 0, at = 0; (n = read(fd[0], o->text + at, sizeof o->text - 1 - (size_t)at)) > 0;)
        at += n;
    (void)close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    o->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void one_line(void **unused)
{
    (void)unused;
    struct outcome o;
    end_in_child(&o, NULL);
    assert_string_equal(o.text, "lockstep: fatal: the device is gone\n");
    assert_int_equal(o.status, ERR_DEVICE);
}

static void a_farewell(void **unused)
{
    (void)unused;
    struct outcome o;
    end_in_child(&o, "state: failed");
    assert_string_equal(o.text, "lockstep: fatal: the device is gone\nstate: failed");
    assert_int_equal(o.status, ERR_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_line), cmocka_unit_test(a_farewell)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
