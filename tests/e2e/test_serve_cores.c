/* tests/e2e/test_serve_cores.c - if mpirun binds rank 0 to a core by default, the server's threads use the launcher's
 * cores, and only these; if it was told to bind, they do not. */
#include "tests/support/cases.h"
#include "tests/support/serving.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLICY "OMPI_MCA_hwloc_base_binding_policy"

static int n_cores(pid_t id)
{
    cpu_set_t mask;
    return sched_getaffinity(id, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

/* Counts the threads of a process except the first (*n); returns how many of them have this many cores. */
static int count_threads(pid_t pid, int cores, int *n)
{
    char path[64];
    int good = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    *n = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        pid_t id = (pid_t)atoi(entry->d_name);
        *n += id > 0 && id != pid;
        good += id > 0 && id != pid && n_cores(id) == cores;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return good;
}

/* wide: threads of the server have more cores than the one that the ranks are bound to. */
static void check_cores(const char *how, bool wide)
{
    struct serving s;
    int all = n_cores(0), n = 0;
    case_begin("%s", how);
    if (case_check(serving_start(&s, 1, NULL, NULL), "no server")) {
        char *story = serving_story(&s, "Once upon a time", 8); /* the main thread has begun its loop on its own core */
        case_check(story != NULL, "it does not answer");
        pid_t rank = process_of_rank(&s.p, 0);
        case_check(n_cores(rank) == 1, "the main thread has %d cores", n_cores(rank));
        int good = count_threads(rank, all, &n);
        /* I/O, two workers, libzmq's two; Open MPI has one or two of its own, which keep their cores. */
        case_check(wide ? good >= 5 && good < n : n >= 6 && count_threads(rank, 1, &n) == n,
                   "%d of %d threads have %d cores", good, n, all);
        free(story);
        (void)serving_stop(&s);
    }
    case_end();
}

int main(void)
{
    cpu_set_t one, before;
    if (n_cores(0) < 2) {
        case_begin("one core: no choice");
        case_end();
        return cases_done();
    }
    (void)setenv(POLICY, "", 1); /* the default; Open MPI 5 has another variable */
    (void)setenv("PRTE_MCA_hwloc_default_binding_policy", "", 1);
    (void)setenv("PRTE_MCA_rmaps_default_mapping_policy", "", 1);
    if (process_has_open_mpi_5()) {
        case_skip("ranks bound to a core", "Open MPI 5 binds none beside --oversubscribe");
    } else {
        check_cores("mpirun's default: the server's threads may use all cores", true);
        (void)setenv(POLICY, "core", 1);
        check_cores("told to use one core: all threads use it", false);
        (void)setenv(POLICY, "", 1);
    }
    (void)sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    check_cores("a launcher with one core: all threads use it", false);
    return cases_done();
}
