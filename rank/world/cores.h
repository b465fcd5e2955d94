/* rank/world/cores.h - checks that there are enough cores for the threads that work at once. Launchers bind ranks, and
 * all threads of a rank inherit that: by default mpirun gives each of one or two ranks one core, srun as many as
 * --cpus-per-task. */
#ifndef WORLD_CORES_H
#define WORLD_CORES_H

#include "rank/world/world.h"

/* Warn once, in the name of the lowest rank that has more threads that compute (n_compute) than cores that it may use;
 * or more with the others that work beside them (n_beside), where its host has more cores. Collective over the job. */
void cores_check(const struct world *w, int n_compute, int n_beside);

#endif
