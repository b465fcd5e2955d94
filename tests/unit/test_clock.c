/* tests/unit/test_clock.c - base/clock.c: the time since a process's start. */
#include "tests/unit/unit.h"

#include "base/clock.h"

#include <sys/wait.h>
#include <unistd.h>

/* Returns the age that a child sees right after it was created. */
static double age_of_child(void)
{
    double age = -2;
    int end[2];
    assert_int_equal(pipe(end), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        age = seconds_since_exec();
        _exit(write(end[1], &age, sizeof age) == sizeof age ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(end[0], &age, sizeof age), sizeof age);
    (void)close(end[0]);
    (void)close(end[1]);
    return age;
}

/* Ages advance with the clock, and are those of the calling process. Linux stores them to 0.01 s. */
static void age(void **state)
{
    (void)state;
    double before = seconds_now(), first = seconds_since_exec(), started = seconds_now();
    if (first < 0) {
        print_message("this system does not tell when a process was started\n");
        skip();
    }
    while (seconds_now() - started < 0.1)
        ;
    double second = seconds_since_exec();
    assert_true(second - first > 0.099 && second - first < seconds_now() - before + 0.001);
    double child = age_of_child();
    assert_true(child > -0.011 && child < seconds_since_exec() - 0.08);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(age)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
