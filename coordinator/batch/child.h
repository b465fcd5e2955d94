/* coordinator/batch/child.h - runs a small program (scontrol) beside the job: without a shell, without waiting, for a
 * bounded time. posix_spawn, since a fork would copy the page tables of everything that MPI and the device have
 * mapped. */
#ifndef BATCH_CHILD_H
#define BATCH_CHILD_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct child { /* all zero: there is none */
    pid_t pid;
    double until; /* seconds_now(): it is killed then */
};

/* Start argv[0] of PATH; argv ends with NULL. It gets /dev/null for input and output, no other descriptors, default
 * signal handling, and a process group of its own, so that signals which launchers send to a rank do not end it. */
int child_start(struct child *c, const char *const *argv, double now, double seconds, struct err *e);

/* Has it ended? Does not wait. *status: its exit status, 128 + n for signal n. A child that has run too long is
 * killed. */
bool child_ended(struct child *c, double now, int *status);

/* Wait for its end, until c->until at most, and return its status. The struct is empty afterwards. Safe on a zeroed
 * struct. */
int child_wait(struct child *c);

#endif
