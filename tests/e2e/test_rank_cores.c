/* tests/e2e/test_rank_cores.c - a rank that may use fewer cores than it has busy threads gets a warning; one that has
 * all cores of its host, or enough, gets none. */
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLICY "OMPI_MCA_hwloc_base_binding_policy"

/* want: the warning's first words, or NULL. */
static void check_warning(const char *how, const char *policy, const char *command, const char *threads,
                          const char *want)
{
    const struct process_setup setup = {.ranks = 1, .input = "{\"prompt\": \"Once\", \"max_tokens\": 2}\n"};
    const char *const batch[] = {"batch", "--model",  models_demo(), "--input",   "-",     "--output",
                                 "-",     "--device", "cpu",         "--threads", threads, NULL};
    const char *const generate[] = {"generate", "--model",  models_demo(), "--prompt",  "Once",  "--max-tokens",
                                    "2",        "--device", "cpu",         "--threads", threads, NULL};
    struct process p;
    (void)setenv(POLICY, policy, 1);
    case_begin("%s: %s with %s thread(s)", how, command, threads);
    process_run(&p, &setup, strcmp(command, "batch") == 0 ? batch : generate);
    const char *line = strstr(p.text[PROCESS_ERR], "lockstep: warning: rank 0 on ");
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    if (want == NULL)
        case_check(line == NULL, "a warning: %s", p.text[PROCESS_ERR]);
    else
        case_check(line != NULL && strstr(line, want) != NULL, "no \"%s\": %s", want, p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

int main(void)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    (void)sched_getaffinity(0, sizeof mask, &mask);
    if (process_has_open_mpi_5()) {
        case_skip("bound to a core", "Open MPI 5 binds none beside --oversubscribe");
    } else if (CPU_COUNT(&mask) > 1) { /* else there are no cores to bind to */
        check_warning("bound to a core", "core", "batch", "1", "and has 4 threads that work at once");
        check_warning("bound to a core", "core", "generate", "1", NULL);
        check_warning("bound to a core", "core", "generate", "2", "and has 2 threads that work at once");
    }
    if (CPU_COUNT(&mask) == sysconf(_SC_NPROCESSORS_ONLN)) /* else a cpuset limits the whole test */
        check_warning("not bound", "none", "batch", "1", NULL);
    check_warning("not bound", "none", "generate", "1000", "and has 1000 threads that work at once");
    return cases_done();
}
