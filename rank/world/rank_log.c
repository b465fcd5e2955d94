/* rank/world/rank_log.c - see rank_log.h. */
#include "rank/world/rank_log.h"
#include "base/log.h"
#include "rank/world/fatal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int rank_log_open(const struct world *w, const char *dir, struct err *e)
{
    char path[PATH_MAX] = "", file[PATH_MAX + 32];
    if (w->rank == 0 && dir != NULL && snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path) {
        path[0] = '\0';
        ERR(e, ERR_USAGE, "--log-dir: the path is longer than %zu bytes", sizeof path - 1);
    }
    MPI_CHECK(MPI_Bcast(path, sizeof path, MPI_BYTE, 0, w->comm));
    if (path[0] == '\0')
        return e->code == ERR_NONE ? 0 : -1;
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return ERR(e, ERR_IO, "--log-dir %.200s: cannot be created: %s", path, strerror(errno));
    (void)snprintf(file, sizeof file, "%s/rank-%d.log", path, w->rank);
    if (log_file(file, w->host, w->rank, e) != 0)
        return -1;
    log_info("lockstep %s, rank %d of %d, process %d, %d of %d cores", LOCKSTEP_VERSION, w->rank, w->n_ranks,
             (int)getpid(), w->n_threads, w->n_cpus);
    return 0;
}
