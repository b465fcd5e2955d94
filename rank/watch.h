/* rank/watch.h - the deadline of a step. Ranks that wait for one that is stopped, dead or stuck would wait for ever, within
 * MPI, NCCL or a kernel, so a thread of its own looks on: at this rank's progress and, in memory that the ranks of a host
 * share, at theirs. When a rank has come no further for `timeout` seconds within a step it ends the job, and names who it
 * was that did not come along, as far as that can be seen from this host.
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
    WATCH_OFF,         /* outside of the loop: no deadline */
    WATCH_COORDINATOR, /* rank 0 between steps: it may wait for work as long as it lives */
    WATCH_PLAN,        /* waiting for the next plan to be shared: no deadline while rank 0 lives in the phase above */
    WATCH_STEP,        /* the rank's own work */
    WATCH_COLLECTIVE,  /* within a collective between CPU ranks */
    WATCH_DEVICE       /* waiting for the device, which may wait for other devices */
};

/* Begin to look on, with no deadline until watch_enter. comm: asked for failures that it only tells when asked; borrowed.
 * timeout 0: no deadline, *watch stays NULL. w: the rank's group. Collective over the job; returns -1 and *e. */
int watch_open(struct watch **watch, const struct world *w, struct comm *comm, double timeout, struct err *e);
/* Collective; accepts NULL. */
void watch_close(struct watch **watch);

/* This rank begins a phase; step: number of the step that it belongs to. NULL: nobody looks on. */
void watch_enter(struct watch *watch, enum watch_phase phase, uint64_t step);
/* The same within the step that was named last. */
void watch_phase(struct watch *watch, enum watch_phase phase);

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

/* In words: "step 57 has made no progress for 3 s (--step-timeout 3): no sign of life since it was computing". */
void watch_say(char *text, size_t bytes, const struct watch_view *culprit, bool is_self, double timeout);

#endif
