/* rank/world/agree.c - see agree.h. */
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <stdio.h>

struct err agree_named(int rank, int n_ranks, const char *host, const struct err *e)
{
    struct err why = *e;
    if (n_ranks > 1)
        (void)snprintf(why.text, sizeof why.text, "rank %d/%d on %s: %.380s", rank, n_ranks, host, e->text);
    return why;
}

/* The ranks that agree. */
static MPI_Comm together(const struct world *w)
{
    return w->apart ? w->comm : w->job;
}

/* The rank in `together`. */
static int lowest_failed(const struct world *w, const struct err *e)
{
    int n = w->apart ? w->n_ranks : w->n_job_ranks, self = w->apart ? w->rank : w->job_rank;
    int mine = e->code != ERR_NONE ? self : n, lowest = n;
    MPI_CHECK(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, together(w)));
    return lowest < n ? lowest : -1;
}

bool agree_failed(const struct world *w, const struct err *e)
{
    return lowest_failed(w, e) >= 0;
}

int agree(const struct world *w, struct err *e)
{
    int lowest = lowest_failed(w, e);
    if (lowest < 0)
        return -1;
    struct err why = agree_named(w->job_rank, w->n_job_ranks, w->host, e);
    MPI_CHECK(MPI_Bcast(&why, sizeof why, MPI_BYTE, lowest, together(w)));
    *e = why;
    return w->apart ? w->job_rank - w->rank + lowest : lowest;
}
