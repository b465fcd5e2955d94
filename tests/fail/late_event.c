/* tests/fail/late_event.c - preloaded into the ranks: Open MPI's own thread handles an event of MPI_Init late, as if it
 * had got no processor for $LATE_EVENT_SECONDS. Its handler reads OMPI_SHOW_MODEL_CALLBACK from the environment: the
 * thread is held there, and the file $LATE_EVENT_MARK records that. If the program goes on meanwhile, the thread is
 * held until MPI_Finalize is under way, however long that takes. */
#include <fcntl.h>
#include <math.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static _Atomic double held_until; /* 0: the thread is not held */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *value_of(const char *name)
{
    size_t n = strlen(name);
    for (char **e = environ; e != NULL && *e != NULL; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return NULL;
}

static double late_seconds(void)
{
    const char *seconds = value_of("LATE_EVENT_SECONDS");
    return seconds != NULL ? atof(seconds) : 0;
}

char *getenv(const char *name)
{
    const char *mark = value_of("LATE_EVENT_MARK");
    if (strcmp(name, "OMPI_SHOW_MODEL_CALLBACK") == 0 && mark != NULL) {
        held_until = now() + late_seconds();
        int file = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (file >= 0)
            (void)close(file);
        while (now() < held_until)
            continue;
        held_until = 0;
    }
    return value_of(name);
}

/* The first MPI call after MPI_Init. */
int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    if (held_until > 0)
        held_until = INFINITY;
    return PMPI_Comm_rank(comm, rank);
}

int MPI_Finalize(void)
{
    if (held_until > 0)
        held_until = now() + late_seconds();
    return PMPI_Finalize();
}
