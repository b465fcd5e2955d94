/* rank/world/fatal.h - the only place that ends the job. One line on standard error, one documented exit status. */
#ifndef WORLD_FATAL_H
#define WORLD_FATAL_H

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>

struct world;

/* Record the identity of this rank of the job. leads: it reports failures that all ranks of its replica see. Called by
 * rank/world/world.c. */
void fatal_identify(int rank, int n_ranks, const char *host, bool leads);

/* The end of a start-up phase: agrees (rank/world/agree.h), and ends the job if any rank has failed. Collective
 * over all ranks of the job, whether w is its world or a replica's. Returns if no rank has failed. Otherwise the lowest
 * failing rank prints its line, and all ranks leave through MPI_Finalize with its code. Over the ranks of a replica
 * that is apart it acts as that rank's fatal(). */
void fatal_agree(struct world *w, const struct err *e);

/* Set a function that is called on this rank when fatal_agree or its own fatal ends the job, after the line, with the
 * failure. NULL: none. */
void fatal_farewell(void (*say)(void *context, const struct err *why), void *context);

/* A failure within a step or in MPI: print the line, then MPI_Abort with the code. Local; never returns. */
_Noreturn void fatal(const struct err *e);

/* A failure of `rank`, this one or another, on `host` (NULL: this one), reported by a thread other than the main one
 * (rank/watch/watch.c): the same, wherever the main thread is. launcher: seconds for the launcher to end the job by
 * itself. said: another rank has printed the line. */
_Noreturn void fatal_for(int rank, const char *host, double launcher, bool said, const struct err *e);

/* The same for the main thread. */
_Noreturn void fatal_of(int rank, const char *host, const struct err *e);

/* Set a function that is called before this process ends for a reason that it prints, to announce that to the other
 * ranks. all: every rank is about to leave through MPI_Finalize, which unmaps memory that a thread may read, so that
 * thread is stopped. It returns whether this rank is the first of its host to report; the others stay silent. NULL: no
 * announcement. */
void fatal_herald(bool (*herald)(bool all));

/* The same for an MPI call that returned an error. */
_Noreturn void fatal_mpi(const char *call, int rc, const char *file, int line);

/* For programs without MPI (inspect, --help): print the line and return the exit status. */
int fatal_local(const struct err *e);

#define MPI_CHECK(call)                                \
    do {                                               \
        int rc_ = (call);                              \
        if (rc_ != MPI_SUCCESS)                        \
            fatal_mpi(#call, rc_, __FILE__, __LINE__); \
    } while (0)

#endif
