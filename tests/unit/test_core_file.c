/* tests/unit/test_core_file.c - the core files that tests look for: mpirun's does not count as the program's. */
#include "tests/support/core_file.h"
#include "tests/support/files.h"
#include "tests/unit/unit.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Makes a process of this name die in `dir`; false: the kernel passes core files to a program instead. */
static bool leave_core(const char *dir, const char *name)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit core;
        (void)getrlimit(RLIMIT_CORE, &core);
        core.rlim_cur = core.rlim_max;
        (void)setrlimit(RLIMIT_CORE, &core);
        (void)prctl(PR_SET_NAME, name);
        (void)signal(SIGQUIT, SIG_DFL);
        if (chdir(dir) == 0)
            (void)raise(SIGQUIT);
        _exit(1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    char pattern[300];
    glob_t found = {0};
    (void)snprintf(pattern, sizeof pattern, "%s/core*", dir);
    bool here = glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
    return here;
}

static void check_core(const char *name, bool counts)
{
    char dir[256];
    files_make_dir(dir);
    assert_false(core_file_of_program(dir));
    bool here = leave_core(dir, name);
    bool counted = core_file_of_program(dir);
    files_remove_dir(dir);
    if (!here)
        skip();
    assert_int_equal(counted, counts);
}

static void a_core_of_the_program_counts(void **state)
{
    (void)state;
    check_core("lockstep", true);
}

static void a_core_of_the_launcher_does_not(void **state)
{
    (void)state;
    check_core("mpirun", false);
}

static void what_is_no_core_file_counts(void **state)
{
    char dir[256];
    (void)state;
    files_make_dir(dir);
    files_write_text(dir, "core.1", "no core");
    bool counted = core_file_of_program(dir);
    files_remove_dir(dir);
    assert_true(counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_core_of_the_program_counts),
        cmocka_unit_test(a_core_of_the_launcher_does_not),
        cmocka_unit_test(what_is_no_core_file_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
