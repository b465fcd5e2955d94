/* rank/watch/notice.h - reports a signal (base/signals.h) that a rank other than 0 has received to rank 0, which
 * decides. Launchers hand most signals to all ranks, but not each of them does so with each signal (scancel --signal
 * reached one node only). A message to rank 0, not a collective: only the rank that received the signal knows. */
#ifndef WATCH_NOTICE_H
#define WATCH_NOTICE_H

#include "base/signals.h"
#include "rank/world/world.h"

struct notice {
    const struct world *world; /* borrowed; the job's or a replica's; the receiver is rank 0 of the job */
    MPI_Request request;       /* rank 0: the next one; others: the last one sent */
    int wish;                  /* enum signal_wish: sent or received */
};

/* Rank 0 begins to listen. Local. */
void notice_open(struct notice *n, const struct world *w);

/* Ranks but 0: tell rank 0 of a signal that has come. Cheap when there is none. Local, does not wait. */
void notice_tell(struct notice *n);

/* Rank 0: the wish that was reported since the last call; WISH_NONE: none. Local, does not wait. */
enum signal_wish notice_hear(struct notice *n);

/* Nobody listens any more. Local. */
void notice_close(struct notice *n);

#endif
