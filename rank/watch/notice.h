/* rank/watch/notice.h - reports a signal (base/signals.h) that a rank other than 0 has received to rank 0, which
 * decides. Launchers forward most signals to all ranks, but not all launchers all signals (scancel --signal reached one
 * node only). A message to rank 0, not a collective: only the rank that received the signal knows. */
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

/* Other ranks: report a received signal to rank 0. Cheap without one. Local, does not block. */
void notice_tell(struct notice *n);

/* Rank 0: the signal reported since the last call; WISH_NONE: none. Local, does not block. */
enum signal_wish notice_hear(struct notice *n);

/* Stops listening. Local. */
void notice_close(struct notice *n);

#endif
