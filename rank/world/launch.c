/* rank/world/launch.c - see launch.h. */
#include "rank/world/launch.h"
#include "base/environment.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define SRUN_WAYS "srun --mpi=pmix (srun --mpi=list names the types), or mpirun"

/* The first of these variables that is set, as a number; otherwise 0. */
static int first_number(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (environment_value(names[i]) != NULL)
            return atoi(environment_value(names[i]));
    return 0;
}

int launch_place(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    return first_number(names, sizeof names / sizeof names[0]);
}

/* An mpirun within a step of Slurm counts, and not the step. */
static bool is_of_srun(void)
{
    return environment_value("SLURM_STEP_ID") != NULL && environment_value("OMPI_COMM_WORLD_SIZE") == NULL;
}

void launch_warn(void)
{
#ifdef OMPI_MAJOR_VERSION
    if (is_of_srun() && environment_value("PMIX_RANK") == NULL && launch_place() == 0)
        (void)fprintf(stderr, "lockstep: warning: srun provides no PMIx, so Open MPI may not start: use %s\n",
                      SRUN_WAYS);
#endif
}

int launch_check(int n_ranks, struct err *e)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    int n = first_number(names, is_of_srun() ? 3 : 2);
    if (n <= 1 || n_ranks > 1)
        return 0;
    return ERR(e, ERR_COMM, "the launcher started %d processes, but MPI knows only this one: use %s", n,
               is_of_srun() ? SRUN_WAYS : "the mpirun of the MPI with which this program was built");
}
