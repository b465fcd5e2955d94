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

/* Lets the calling thread, and threads that it creates from now on, use all cores of the launcher itself: those of the
 * cpuset, and of Slurm's allocation. No-op unless mpirun has narrowed them by default (and not by --bind-to, or a
 * policy in the environment). */
void cores_widen(struct cores *c);

/* Restores the calling thread's own cores; the other threads keep theirs. */
void cores_restore(const struct cores *c);

#endif
