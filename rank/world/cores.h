/* rank/world/cores.h - checks that there are enough cores for the threads that work at once. Launchers bind ranks, and
 * all threads of a rank inherit the binding: by default mpirun gives each of one or two ranks one core, srun as many as
 * --cpus-per-task. */
#ifndef WORLD_CORES_H
#define WORLD_CORES_H

#include "rank/world/world.h"

/* Warn once, naming the lowest rank that has more computing threads (n_compute) than allowed cores, or more threads
 * including helpers (n_beside) if its host has more cores. Collective over the job. */
void cores_check(const struct world *w, int n_compute, int n_beside);

#endif
