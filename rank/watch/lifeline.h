/* rank/watch/lifeline.h - a connection from every rank's watch thread to rank 0's, independent of MPI, which by itself
 * reports neither a dead process nor a lost host. The kernel closes the connections of a process that ends, in whatever
 * way, and gives up one to a host that has not answered for LIFELINE_LOST_SECONDS: a stopped process still answers, and
 * TCP recovers from an interruption of a few seconds. Ranks of rank 0's host use a Unix socket; a TCP port is open only
 * in jobs of several hosts. Several times a second a rank sends its state to rank 0, and receives that of rank 0.
 *
 * One thread serves a lifeline; lifeline_wake and lifeline_leave may come from others. */
#ifndef WATCH_LIFELINE_H
#define WATCH_LIFELINE_H

#include "rank/world/world.h"

#include <stdint.h>

#define LIFELINE_LOST_SECONDS 7

struct lifeline;

/* The state of a rank, as in rank/watch/watch.h. */
struct lifeline_state {
    int32_t activity, last; /* enum rank_activity, enum collective */
    uint64_t step, last_step;
    uint32_t n_last;
};

enum lifeline_event {
    LIFELINE_TIME,  /* the time is over */
    LIFELINE_WOKEN, /* lifeline_wake was called */
    LIFELINE_ENDED, /* the process of *rank has ended */
    LIFELINE_LOST   /* the host of *rank does not answer */
};

/* Connect. state: returns this rank's state, called by the serving thread. A rank that cannot reach rank 0 causes a
 * warning and runs without a connection. w: the rank's replica; collective over the job; returns -1 and *e. */
int lifeline_open(struct lifeline **l, const struct world *w, void (*state)(void *context, struct lifeline_state *),
                  void *context, struct err *e);

/* Serve the connections for up to `seconds`, or until an event. Each rank is reported once. Rank 0 learns of all ranks,
 * the others of rank 0. */
enum lifeline_event lifeline_wait(struct lifeline *l, double seconds, int *rank);

/* The last state of that rank; false: none yet. */
bool lifeline_heard(const struct lifeline *l, int rank, struct lifeline_state *state);

/* Has that rank announced that it is leaving? */
bool lifeline_left(const struct lifeline *l, int rank);

/* End lifeline_wait, now or at its next call. Any thread. */
void lifeline_wake(struct lifeline *l);

/* Tell the others that this process ends for a known reason. Any thread, and signal handlers. */
void lifeline_leave(const struct lifeline *l);

/* Accepts NULL. Local; the others take it for the end of the process unless they have stopped serving. */
void lifeline_close(struct lifeline **l);

#endif
