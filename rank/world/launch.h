/* rank/world/launch.h - what the launcher says about this process, by its own variables, and whether MPI agrees. */
#ifndef WORLD_LAUNCH_H
#define WORLD_LAUNCH_H

#include "base/err.h"

/* The number of this process among those that the launcher has started; 0: the first, or the only one. */
int launch_place(void);

/* Before MPI_Init, by the first process: a warning if srun provides no PMIx, without which Open MPI ends the process
 * there, mostly with a message that does not say why. */
void launch_warn(void);

/* Fails if the launcher has started more processes than the only one that MPI knows: it belongs to another MPI, or gave
 * this one no way to find the others, so that each would do all the work. Each says so: the launcher may end the others
 * as soon as one has ended. */
int launch_check(int n_ranks, struct err *e);

#endif
