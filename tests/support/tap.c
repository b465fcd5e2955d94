/* tests/support/tap.c - see tap.h. */
#include "tests/support/tap.h"

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>

static int n_cases, n_failed;

bool tap_all(bool ok, const char *reason, const char *format, ...)
{
    char name[200];
    int mine = ok, all = 0, rank = 0;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    n_cases++;
    n_failed += !all;
    if (!ok)
        fprintf(stderr, "# rank %d: %s: %s\n", rank, name, reason);
    if (rank == 0) {
        printf("%s %d - %s\n", all ? "ok" : "not ok", n_cases, name);
        fflush(stdout);
    }
    return all != 0;
}

int tap_done(void)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("1..%d\n", n_cases);
    return n_failed > 0 || n_cases == 0;
}
