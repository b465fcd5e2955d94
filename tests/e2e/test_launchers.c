/* tests/e2e/test_launchers.c - a launcher that starts several processes which MPI does not join: each would do all the
 * work. */
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdlib.h>
#include <string.h>

static void check_refused(const char *name, const char *const *env, const char *want)
{
    const struct process_setup setup = {.env = env};
    const char *const generate[] = {"generate", "--model",      models_demo(), "--prompt",
                                    "Once",     "--max-tokens", "2",           NULL};
    struct process p;
    case_begin("%s", name);
    process_run(&p, &setup, generate);
    case_check(p.status == 8 && strstr(p.text[PROCESS_ERR], want) != NULL, "status %d, expected 8 and \"%s\": %s",
               p.status, want, p.text[PROCESS_ERR]);
    case_check(p.bytes[PROCESS_OUT] == 0, "a text: %s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

int main(void)
{
    check_refused("mpirun of MPICH", (const char *const[]){"PMI_RANK=0", "PMI_SIZE=4", NULL},
                  "fatal: the launcher started 4 processes, but MPI knows only this one: use the mpirun of the MPI");
    check_refused("mpirun of Open MPI, for another one",
                  (const char *const[]){"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", NULL},
                  "fatal: the launcher started 2 processes, but MPI knows only this one: use the mpirun of the MPI");
    return cases_done();
}
