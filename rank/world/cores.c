/* rank/world/cores.c - see cores.h. */
#include "rank/world/cores.h"
#include "base/log.h"
#include "rank/world/fatal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct seat {
    char host[64];
    int32_t n_threads, n_cpus, n_online;
};

void cores_check(const struct world *w, int n_compute, int n_beside)
{
    struct seat mine = {
        .n_threads = n_compute + n_beside, .n_cpus = w->n_cpus, .n_online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)};
    bool narrow = n_compute > mine.n_cpus || (mine.n_threads > mine.n_cpus && mine.n_cpus < mine.n_online);
    int first = narrow ? w->job_rank : w->n_job_ranks, lowest = first, is_narrow = narrow, n_narrow = 0;
    memcpy(mine.host, w->host, sizeof mine.host);
    MPI_CHECK(MPI_Allreduce(&first, &lowest, 1, MPI_INT, MPI_MIN, w->job));
    if (lowest == w->n_job_ranks)
        return;
    MPI_CHECK(MPI_Allreduce(&is_narrow, &n_narrow, 1, MPI_INT, MPI_SUM, w->job));
    MPI_CHECK(MPI_Bcast(&mine, sizeof mine, MPI_BYTE, lowest, w->job));
    log_warn(
        "rank %d on %s may use %d of %d cores, and has %d threads that work at once%s: see mpirun --bind-to none or "
        "--map-by ppr:N:node:PE=%d, srun --cpus-per-task=%d",
        lowest, mine.host, mine.n_cpus, mine.n_online, mine.n_threads,
        n_narrow > 1 ? ", and it is not the only one" : "", mine.n_threads, mine.n_threads);
}
