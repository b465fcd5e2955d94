/* rank/watch/watch.h - ranks that are dead or late, and the deadline of a step. Ranks that wait for one that is stopped, dead or
 * stuck would wait for ever, within MPI, NCCL or a kernel, so a thread of its own looks on: at this rank's progress and, in
 * memory that the ranks of a host share, at theirs. When a rank has come no further for `timeout` seconds within a step it
 * ends the job, and names who it was that did not come along, as far as that can be seen from this host.
 *
 * A process that ended without a word and a host that is lost (rank/watch/lifeline.h) end the job at once, whatever the deadline,
 * from watch_open on. Rank 0 says so; if it is rank 0 that is gone, its deputy: another rank of its host, else rank 1.
 *
 * Progress is an activity that begins (rank/observe/observer.h): a step, a collective of CPU ranks, the wait for a device. So a step of CPU ranks
 * may take longer in all, as long as it comes from one collective to the next in time. Time during which the whole job was
 * stopped does not count. */
#ifndef WATCH_WATCH_H
#define WATCH_WATCH_H

#include "rank/observe/observer.h"
#include "rank/world/world.h"

#include <stdbool.h>
#include <stdint.h>

struct watch;

/* A failure that a transport tells only when it is asked: returns -1 and *e. The watch's thread asks, within steps. */
struct watch_question {
    int (*ask)(void *context, struct err *e);
    void *context; /* borrowed */
};

/* Begin to look on, with no deadline until watch_enter. device: in words, for messages. timeout 0: no deadline. w: the rank's group. Collective over the job; returns
 * -1 and *e. */
int watch_open(struct watch **watch, const struct world *w, const char *device, struct watch_question question,
               double timeout, struct err *e);
/* Collective; accepts NULL. */
void watch_close(struct watch **watch);

/* For the engine's list: the rank's activities are its progress. NULL for NULL. */
struct observer *watch_observer(struct watch *watch);

/* What one rank sees of another one of its host, or of itself. */
struct watch_view {
    int rank; /* of the job */
    enum rank_activity activity;
    uint64_t step;
    double stalled, silent; /* seconds since its last progress, and since the last sign of life of its process */
    int leader;             /* the first rank of its group: only ranks of one group wait for each other */
};

/* Who is at fault: an index of view[n], the ranks of this host; `self` (this rank's index) when nobody else can be seen to
 * be; -1 while nothing is wrong as seen from there. Pure. */
int watch_judge(const struct watch_view *view, int n, int self, double timeout);

struct lifeline_state;

/* In words, of a rank whose process ended or whose host is lost; state NULL: it never told where it was. "its process ended
 * without a word (killed? out of memory?): step 57, computing; last collective: all-reduce 12 of step 57; device cpu" */
void watch_say_gone(char *text, size_t bytes, bool lost, const struct lifeline_state *state, const char *device);

/* In words: "step 57 has made no progress for 3 s (--step-timeout 3): no sign of life since it was computing". */
void watch_say(char *text, size_t bytes, const struct watch_view *culprit, bool is_self, double timeout);

#endif
