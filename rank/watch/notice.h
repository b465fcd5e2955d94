/* rank/watch/notice.h - a signal that another rank than 0 of the job has got (base/signals.h) is told to rank 0, which
 * decides. Launchers hand
 * most signals to all ranks, but not each of them does so with each signal (scancel --signal reached one node only). A
 * message to rank 0, no collective: only the rank that was hit knows. */
#ifndef WATCH_NOTICE_H
#define WATCH_NOTICE_H

#include "base/signals.h"
#include "rank/world/world.h"

struct notice {
    const struct world *world; /* borrowed; the job's or a group's: told is rank 0 of the job */
    MPI_Request request;       /* rank 0: the next one; others: the last one sent */
    int wish;                  /* enum signal_wish: what is sent or received */
};

/* Rank 0 begins to listen. Local. */
void notice_open(struct notice *n, const struct world *w);

/* Ranks but 0: tell rank 0 of a signal that has come. Cheap when there is none. Local, does not wait. */
void notice_tell(struct notice *n);

/* Rank 0: what has been told since; WISH_NONE: nothing. Local, does not wait. */
enum signal_wish notice_hear(struct notice *n);

/* Nobody listens any more. Local. */
void notice_close(struct notice *n);

#endif
