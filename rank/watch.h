/* rank/watch.h - ranks that are dead or late, and the deadline of a step. Ranks that wait for one that is stopped, dead or
 * stuck would wait for ever, within MPI, NCCL or a kernel, so a thread of its own looks on: at this rank's progress and, in
 * memory that the ranks of a host share, at theirs. When a rank has come no further for `timeout` seconds within a step it
 * ends the job, and names who it was that did not come along, as far as that can be seen from this host.
 *
 * A process that ended without a word and a host that is lost (rank/lifeline.h) end the job at once, whatever the deadline,
 * from watch_open on. Rank 0 says so; if it is rank 0 that is gone, its deputy: another rank of its host, else rank 1.
 *
 * Progress is a phase that begins or ends: a step, a collective of CPU ranks, the wait for a device. So a step of CPU ranks
 * may take longer in all, as long as it comes from one collective to the next in time. Time during which the whole job was
 * stopped does not count. */
#ifndef RANK_WATCH_H
#define RANK_WATCH_H

#include "rank/world.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;
struct watch;

enum watch_phase {
    WATCH_OFF,         /* outside of the loop, loading for instance: no deadline */
    WATCH_COORDINATOR, /* rank 0 between steps: it may wait for work as long as it lives */
    WATCH_PLAN,        /* waiting for the next plan to be shared: no deadline while rank 0 lives in the phase above */
    WATCH_STEP,        /* the rank's own work */
    WATCH_COLLECTIVE,  /* within a collective between CPU ranks */
    WATCH_DEVICE       /* waiting for the device, which may wait for other devices */
};

enum watch_collective { WATCH_NONE_YET, WATCH_PLAN_BROADCAST, WATCH_ALL_REDUCE, WATCH_ALL_GATHER };

/* Begin to look on, with no deadline until watch_enter. device: in words, for messages. comm: asked for failures that it only
 * tells when asked, within steps; borrowed. timeout 0: no deadline. w: the rank's group. Collective over the job; returns
 * -1 and *e. */
int watch_open(struct watch **watch, const struct world *w, const char *device, struct comm *comm, double timeout,
               struct err *e);
/* Collective; accepts NULL. */
void watch_close(struct watch **watch);

/* This rank begins a phase; step: number of the step that it belongs to. NULL: nobody looks on. */
void watch_enter(struct watch *watch, enum watch_phase phase, uint64_t step);
/* The same within the step that was named last. */
void watch_phase(struct watch *watch, enum watch_phase phase);
/* A collective of the step begins, and with it the phase that belongs to it. */
void watch_collective(struct watch *watch, enum watch_collective kind);

/* What one rank sees of another one of its host, or of itself. */
struct watch_view {
    int rank; /* of the job */
    enum watch_phase phase;
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
