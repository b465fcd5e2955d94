/* tests/fail/fail_finalize.c - preloaded into the ranks: on rank $FAIL_FINALIZE_RANK MPI_Finalize prints that the heap
 * is damaged, as the C library would, and dies of the signal $FAIL_FINALIZE_SIGNAL (a number). */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int MPI_Finalize(void);

int MPI_Finalize(void)
{
    static const char damage[] = "malloc_consolidate(): unaligned fastbin chunk detected\n";
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "MPI_Finalize");
    const char *chosen = getenv("FAIL_FINALIZE_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    const char *number = getenv("FAIL_FINALIZE_SIGNAL");
    if (chosen == NULL || rank == NULL || number == NULL || strcmp(chosen, rank) != 0)
        return next();
    (void)!write(STDERR_FILENO, damage, sizeof damage - 1);
    (void)raise(atoi(number));
    return 0;
}
