/* tests/unit/test_hardening.c - the built programs have the properties that the Makefile's HARDEN and PIE_LINK request;
 * read with readelf. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

static char text[1 << 20];

/* Reads the output of readelf for a program of this build. */
static void read_elf(const char *flags, const char *program)
{
    char command[600];
    const char *build = getenv("LOCKSTEP_BUILD");
    (void)snprintf(command, sizeof command, "readelf -W %s %s/%s", flags, build != NULL ? build : "build/cpu", program);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    assert_int_equal(pclose(f), 0);
}

static void has(const char *part, const char *program)
{
    if (strstr(text, part) == NULL)
        fail_msg("%s: readelf shows no %s", program, part);
}

static void check_program(const char *program)
{
    read_elf("-h", program);
    has("DYN", program);
    read_elf("-l", program);
    has("GNU_RELRO", program);
    read_elf("-d", program);
    has("BIND_NOW", program);
    has("PIE", program);
    read_elf("--dyn-syms", program);
    has("__stack_chk_fail", program);
    if (getenv("LOCKSTEP_SANITIZED") == NULL)
        has("_chk@", program); /* such as __snprintf_chk@GLIBC_2.3.4 */
}

static void programs_are_hardened(void **state)
{
    (void)state;
    check_program("lockstep");
    check_program("lockstep-client");
    check_program("lockstep-gateway");
}

/* The linker keeps the mark only if every object has it, including those of nvcc and the system's start files. */
static void jumps_are_marked(void **state)
{
    (void)state;
#ifdef __CET__
    read_elf("-n", "client/main.c.o");
    has("IBT", "main.c.o");
    has("SHSTK", "main.c.o");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_are_hardened), cmocka_unit_test(jumps_are_marked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
