/* rank/watch/deadline.h - a time limit for collective work outside of the loop (rank/watch/watch.h has the one for
 * steps): a thread ends the job if a part of the work does not end, and names the rank at fault as far as this host can
 * see it: one without a sign of life, or else one that is behind the others. */
#ifndef WATCH_DEADLINE_H
#define WATCH_DEADLINE_H

#include "rank/world/world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* A rank, as seen by the others of its host: in shared memory, written only by that rank, except `spoken`. */
struct deadline_mark {
    _Atomic int32_t rank, part, beats;
    _Atomic int32_t spoken; /* in the first one: a rank of this host is ending the job */
};

/* The same, as one rank has seen it. */
struct deadline_view {
    int rank, part;
    double silent; /* s without a beat */
};

struct deadline {
    const char *what, *const *part; /* borrowed: names for messages */
    double seconds;
    int n, self; /* ranks of this host, and which of them this one is */
    bool other_hosts;
    MPI_Win window;
    struct deadline_mark *mark; /* [n] */
    struct deadline_view *view; /* [n] the thread's */
    int32_t *seen;              /* [n] the thread's: beats */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t wake;
    double left; /* s, for the current part, without time in which this process was stopped; INFINITY: no part is
                    active */
    bool closing;
};

/* One at a time, and not together with a watch. what: the beginning of the message, which names part[i]; `seconds` is
 * the limit of each part. Collective; returns -1 and *e. The struct must not move. */
int deadline_open(struct deadline *d, const struct world *w, const char *what, const char *const *part, double seconds,
                  struct err *e);
/* Collective. */
void deadline_close(struct deadline *d);

/* This rank begins part i. */
void deadline_part(struct deadline *d, int i);

/* The index in view[n] of the rank at fault when rank `self` has run out of time; `self`: no other rank appears to be
 * at fault. Pure. */
int deadline_judge(const struct deadline_view *view, int n, int self, double seconds);

#endif
