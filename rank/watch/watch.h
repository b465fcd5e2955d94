/* rank/watch/watch.h - ranks that are dead or late, and the deadline of a step. Ranks that wait for one that is
 * stopped, dead or stuck would wait forever, within MPI, NCCL or a kernel, so a separate thread observes this rank's
 * progress and, through shared memory, that of the host's other ranks. If a rank makes no progress for `timeout`
 * seconds within a step, the thread ends the job and names the rank at fault, as far as this host can see it.
 *
 * A process that ended without a word and a host that is lost (rank/watch/lifeline.h) end the job at once, whatever the
 * deadline, from watch_open on. Rank 0 prints the line; if rank 0 itself is gone, its deputy does: another rank of its
 * host, otherwise rank 1.
 *
 * Progress means that an activity begins (rank/observe/observer.h): a step, a collective of CPU ranks, the wait for a
 * device. So a step of CPU ranks may take longer in total if it gets from one collective to the next in time. Time
 * during which the whole job was stopped does not count. */
#ifndef WATCH_WATCH_H
#define WATCH_WATCH_H

#include "rank/observe/observer.h"
#include "rank/world/world.h"

#include <stdbool.h>
#include <stdint.h>

struct watch;

/* Polls a transport for a failure that it does not report by itself: returns -1 and *e. The watch's thread calls it,
 * within steps. */
struct watch_question {
    int (*ask)(void *context, struct err *e);
    void *context; /* borrowed */
};

/* Begin to watch, without a deadline until watch_enter. device: description for messages. timeout 0: no deadline. w:
 * the rank's replica. Collective over the job; returns -1 and *e. */
int watch_open(struct watch **watch, const struct world *w, const char *device, struct watch_question question,
               double timeout, struct err *e);
/* Collective; accepts NULL. */
void watch_close(struct watch **watch);

/* For the engine's list: the rank's activities are its progress. NULL for NULL. */
struct observer *watch_observer(struct watch *watch);

#endif
