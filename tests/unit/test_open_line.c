/* tests/unit/test_open_line.c - base/open_line.c: a signal that ends the process ends an open line, and then does what
 * it did before. */
#include "tests/unit/unit.h"

#include "base/open_line.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int out;

/* As in rank/watch/watch.c: other ranks are told, then the process ends by the signal. */
static void tell_others(int number)
{
    (void)!write(out, "told", 4);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Returns the output of a child that gets SIGTERM after this text; *status says how it ended. */
static void die(const char *text, void (*before)(int), char *said, size_t room, int *status)
{
    int end[2];
    size_t n = 0;
    assert_int_equal(pipe(end), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        out = end[1];
        (void)signal(SIGTERM, before);
        open_line_guard(end[1]);
        open_line_note(text, strlen(text));
        (void)raise(SIGTERM);
        _exit(0);
    }
    (void)close(end[1]);
    for (ssize_t got; n + 1 < room && (got = read(end[0], said + n, room - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    (void)close(end[0]);
    assert_int_equal(waitpid(pid, status, 0), pid);
}

static void a_signal(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        void (*before)(int);
        const char *said;
        bool ends;
    } cases[] = {{"Once", SIG_DFL, "\n", true},
                 {"Once\n", SIG_DFL, "", true},
                 {"Once", tell_others, "\ntold", true},
                 {"Once\n", tell_others, "told", true},
                 {"Once", SIG_IGN, "", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char said[40];
        int status = 0;
        die(cases[i].text, cases[i].before, said, sizeof said, &status);
        assert_string_equal(said, cases[i].said);
        assert_true(cases[i].ends ? WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM : WIFEXITED(status));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_signal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
