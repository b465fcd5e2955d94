/* rank/world.c - see world.h. */
#include "rank/world.h"
#include "rank/fatal.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Open MPI binds ranks to cores or leaves them free, depending on their number and on the launcher's options, so masks
 * may be disjoint, equal or anything between. A core that k ranks of the node share counts 1/k for each. */
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

#define MAX_LIBRARIES 512

struct libraries {
    int n;
    char *name[MAX_LIBRARIES];
};

static int list_library(struct dl_phdr_info *info, size_t bytes, void *list)
{
    struct libraries *l = list;
    (void)bytes;
    if (info->dlpi_name != NULL && info->dlpi_name[0] != '\0' && l->n < MAX_LIBRARIES)
        l->name[l->n++] = strdup(info->dlpi_name);
    return 0;
}

/* MPI_Finalize unloads the parts that MPI_Init loaded. Once in some thousand starts that end at once a rank died there, with
 * Open MPI 4.1.4 (SIGSEGV, address not mapped): it seems that a thread was still in such a part. So nothing is unloaded.
 * Opened after the listing, not in it: the loader takes its two locks in the other order there. */
static void keep_libraries(void)
{
    struct libraries l = {.n = 0};
    (void)dl_iterate_phdr(list_library, &l);
    for (int i = 0; i < l.n; i++) {
        if (l.name[i] != NULL)
            (void)dlopen(l.name[i], RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        free(l.name[i]);
    }
}

int world_open(struct world *w, int *argc, char ***argv, struct err *e)
{
    int granted = 0;
    memset(w, 0, sizeof *w);
    w->device = -1;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &granted) != MPI_SUCCESS)
        return ERR(e, ERR_COMM, "MPI_Init_thread failed");
    keep_libraries();
    w->comm = w->job = MPI_COMM_WORLD;
    MPI_CHECK(MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(w->comm, &w->rank));
    MPI_CHECK(MPI_Comm_size(w->comm, &w->n_ranks));
    if (gethostname(w->host, sizeof w->host - 1) != 0)
        strcpy(w->host, "unknown-host");
    w->job_rank = w->rank;
    w->n_job_ranks = w->n_ranks;
    w->n_groups = 1;
    fatal_identify(w->rank, w->n_ranks, w->host, w->rank == 0);
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

/* Are all ranks of the group on this rank's node? Nodes are told apart by their lowest rank of the job. */
static bool is_on_one_host(const struct world *w, const struct world *group)
{
    int lowest = 0, mine[2], most[2];
    MPI_CHECK(MPI_Allreduce(&w->job_rank, &lowest, 1, MPI_INT, MPI_MIN, w->node));
    mine[0] = lowest;
    mine[1] = -lowest;
    MPI_CHECK(MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, group->comm));
    return most[0] == -most[1];
}

void world_split(const struct world *w, int size, struct world *group)
{
    *group = *w;
    if (size <= 0 || size >= w->n_ranks)
        return;
    group->group = w->rank / size;
    group->n_groups = w->n_ranks / size;
    MPI_CHECK(MPI_Comm_split(w->comm, group->group, w->rank, &group->comm));
    MPI_CHECK(MPI_Comm_set_errhandler(group->comm, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Comm_rank(group->comm, &group->rank));
    MPI_CHECK(MPI_Comm_size(group->comm, &group->n_ranks));
    group->on_one_host = is_on_one_host(w, group);
    fatal_identify(w->job_rank, w->n_job_ranks, w->host, group->rank == 0);
}

void world_join(struct world *group)
{
    if (group->n_groups > 1 && group->comm != MPI_COMM_NULL)
        MPI_CHECK(MPI_Comm_free(&group->comm));
    *group = (struct world){.comm = MPI_COMM_NULL, .node = MPI_COMM_NULL};
}
