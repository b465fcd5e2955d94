/* rank/world/world.c - see world.h. */
#include "rank/world/world.h"
#include "base/clock.h"
#include "rank/world/fatal.h"
#include "rank/world/launch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_SECONDS 1.0 /* the longest wait for the threads of MPI after MPI_Init */

/* Open MPI binds ranks to cores or leaves them free, depending on their number and on the launcher's options, so masks
 * may be disjoint, equal or overlapping. A core that k ranks of the node share counts 1/k for each. */
static int fair_threads(const struct world *w, int *n_cpus)
{
    cpu_set_t mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        CPU_SET(0, &mine);
    *n_cpus = CPU_COUNT(&mine);
    int holders[CPU_SETSIZE], held[CPU_SETSIZE];
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        held[cpu] = CPU_ISSET(cpu, &mine) ? 1 : 0;
    MPI_CHECK(MPI_Allreduce(held, holders, CPU_SETSIZE, MPI_INT, MPI_SUM, w->node));
    double share = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (held[cpu])
            share += 1.0 / holders[cpu];
    int threads = (int)(share + 1e-6);
    return threads > 1 ? threads : 1;
}

/* Is this thread of the process asleep? Also true if it is gone, or if the kernel does not tell. */
static bool is_asleep(const char *thread)
{
    char path[64], text[256];
    (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return true;
    ssize_t n = read(file, text, sizeof text - 1);
    (void)close(file);
    text[n > 0 ? n : 0] = '\0';
    const char *state = strstr(text, ") "); /* "1234 (lockstep) S 1 ..." */
    return state == NULL || state[2] == 'S';
}

/* Called by the first thread, the only one that should be awake. */
static bool others_asleep(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool all = true;
    if (tasks == NULL)
        return true;
    for (const struct dirent *d = readdir(tasks); d != NULL && all; d = readdir(tasks))
        all = d->d_name[0] == '.' || atoi(d->d_name) == (int)getpid() || is_asleep(d->d_name);
    (void)closedir(tasks);
    return all;
}

/* MPI_Init of Open MPI 4.1 returns while its own thread still hands an event of it ("a programming model is declared")
 * back to PMIx's thread. If that one gets no processor until MPI_Finalize, it uses memory that is freed or unloaded by
 * then: a damaged heap ("malloc_consolidate(): unaligned fastbin chunk detected") or SIGSEGV at the end of a good run,
 * once in thousands of starts. So this waits until MPI's threads sleep, a few milliseconds; twice, since one wakes the
 * other. False: one never slept. */
static bool let_mpi_settle(void)
{
    const struct timespec pause = {0, 1000000};
    int quiet = 0;
    for (double until = seconds_now() + SETTLE_SECONDS; quiet < 2 && seconds_now() < until;) {
        (void)nanosleep(&pause, NULL);
        quiet = others_asleep() ? quiet + 1 : 0;
    }
    return quiet == 2;
}

int world_open(struct world *w, int *argc, char ***argv, struct err *e)
{
    int granted = 0;
    memset(w, 0, sizeof *w);
    w->device = -1;
    launch_warn();
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &granted) != MPI_SUCCESS)
        return ERR(e, ERR_COMM, "MPI_Init_thread failed");
    int restless = let_mpi_settle() ? 0 : 1;
    w->comm = w->job = MPI_COMM_WORLD;
    MPI_CHECK(MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Allreduce(&restless, &w->n_restless, 1, MPI_INT, MPI_SUM, w->comm));
    MPI_CHECK(MPI_Comm_rank(w->comm, &w->rank));
    MPI_CHECK(MPI_Comm_size(w->comm, &w->n_ranks));
    if (gethostname(w->host, sizeof w->host - 1) != 0)
        strcpy(w->host, "unknown-host");
    w->job_rank = w->rank;
    w->n_job_ranks = w->n_ranks;
    w->n_replicas = 1;
    fatal_identify(w->rank, w->n_ranks, w->host, w->rank == 0);
    if (launch_check(w->n_ranks, e) != 0)
        return -1;
    if (granted < MPI_THREAD_FUNNELED)
        return ERR(e, ERR_COMM, "this MPI grants thread level %d, MPI_THREAD_FUNNELED (%d) is needed", granted,
                   MPI_THREAD_FUNNELED);
    MPI_CHECK(MPI_Comm_split_type(w->comm, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &w->node));
    MPI_CHECK(MPI_Comm_set_errhandler(w->node, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(w->node, &w->node_rank));
    MPI_CHECK(MPI_Comm_size(w->node, &w->n_node_ranks));
    w->on_one_host = w->n_node_ranks == w->n_ranks;
    w->n_threads = fair_threads(w, &w->n_cpus);
    return 0;
}

void world_close(struct world *w)
{
    if (w->comm == MPI_COMM_NULL)
        return;
    if (w->node != MPI_COMM_NULL)
        (void)MPI_Comm_free(&w->node);
    (void)MPI_Finalize();
    w->comm = MPI_COMM_NULL;
}

/* Whether all ranks of the replica are on this rank's node. Nodes are distinguished by their lowest rank of the job. */
static bool is_on_one_host(const struct world *w, const struct world *replica)
{
    int lowest = 0, mine[2], most[2];
    MPI_CHECK(MPI_Allreduce(&w->job_rank, &lowest, 1, MPI_INT, MPI_MIN, w->node));
    mine[0] = lowest;
    mine[1] = -lowest;
    MPI_CHECK(MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, replica->comm));
    return most[0] == -most[1];
}

void world_split(const struct world *w, int size, struct world *replica)
{
    *replica = *w;
    if (size <= 0 || size >= w->n_ranks)
        return;
    replica->replica = w->rank / size;
    replica->n_replicas = w->n_ranks / size;
    MPI_CHECK(MPI_Comm_split(w->comm, replica->replica, w->rank, &replica->comm));
    MPI_CHECK(MPI_Comm_set_errhandler(replica->comm, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(replica->comm, &replica->rank));
    MPI_CHECK(MPI_Comm_size(replica->comm, &replica->n_ranks));
    replica->on_one_host = is_on_one_host(w, replica);
    fatal_identify(w->job_rank, w->n_job_ranks, w->host, replica->rank == 0);
}

/* The ranks of this part share what the node's ranks shared. */
static void split_node(struct world *w, int part)
{
    MPI_Comm all = w->node;
    MPI_CHECK(MPI_Comm_split(all, part, w->job_rank, &w->node));
    MPI_CHECK(MPI_Comm_set_errhandler(w->node, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(w->node, &w->node_rank));
    MPI_CHECK(MPI_Comm_size(w->node, &w->n_node_ranks));
    w->apart = true;
}

void world_part(struct world *replica)
{
    if (replica->n_replicas > 1)
        split_node(replica, replica->replica);
}

void world_first(const struct world *replica, int n, struct world *first)
{
    int part = replica->rank < n ? 0 : 1;
    *first = *replica;
    MPI_CHECK(MPI_Comm_split(replica->comm, part, replica->rank, &first->comm));
    MPI_CHECK(MPI_Comm_set_errhandler(first->comm, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(first->comm, &first->rank));
    MPI_CHECK(MPI_Comm_size(first->comm, &first->n_ranks));
    first->on_one_host = is_on_one_host(replica, first);
    split_node(first, 2 * replica->replica + part);
}

void world_join(struct world *replica)
{
    if (replica->apart)
        MPI_CHECK(MPI_Comm_free(&replica->node));
    if (replica->comm != replica->job && replica->comm != MPI_COMM_NULL)
        MPI_CHECK(MPI_Comm_free(&replica->comm));
    *replica = (struct world){.comm = MPI_COMM_NULL, .node = MPI_COMM_NULL};
}
