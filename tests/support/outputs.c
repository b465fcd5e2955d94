/* tests/support/outputs.c - see outputs.h. */
#include "tests/support/outputs.h"
#include "tests/support/cases.h"
#include "tests/support/process.h"

#include <string.h>

char *case_output(int ranks, const char *const *arguments)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    process_run(&p, &setup, arguments);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    char *out = strdup(p.text[PROCESS_OUT]);
    process_free(&p);
    return out;
}
