/* rank/world/cores.h - are there enough cores for the threads that work at once? Launchers bind ranks, and all threads of a rank
 * inherit that: mpirun gives each of one or two ranks one core unless told otherwise, srun as many as --cpus-per-task says. */
#ifndef WORLD_CORES_H
#define WORLD_CORES_H

#include "rank/world/world.h"

/* Warn once, in the name of the lowest rank that has more threads that compute (n_compute) than cores that it may use; or more
 * with the others that work beside them (n_beside), where its host has more cores. Collective over the job. */
void cores_check(const struct world *w, int n_compute, int n_beside);

#endif
