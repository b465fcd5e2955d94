/* commands/thread_cores.h - the cores on which the threads of serve and batch run. By default mpirun binds each of one
 * or two ranks to one core, which threads inherit: threads that read sockets or files would share the core on which
 * rank 0 computes, while other cores idle. */
#ifndef COMMANDS_THREAD_CORES_H
#define COMMANDS_THREAD_CORES_H

#include <sched.h>
#include <stdbool.h>

struct cores {
    bool widened;
    cpu_set_t own; /* of the calling thread, before */
};

/* The calling thread, and threads that it makes from now on, may use all cores that the launcher itself has: those of
 * the cpuset, and of Slurm's allocation. Nothing changes where no mpirun has narrowed them, or it was asked to
 * (--bind-to, or a policy in the environment). */
void cores_widen(struct cores *c);

/* The calling thread goes back to its own; the others stay. */
void cores_restore(const struct cores *c);

#endif
