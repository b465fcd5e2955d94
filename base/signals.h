/* base/signals.h - signals that ask a job to end, to drain or to report its progress, recorded until they are polled.
 * Every rank handles them, because the launcher forwards them to all and a rank without a handler would die of one. */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

#include "base/err.h"

#include <stdbool.h>

enum signal_wish { /* the stronger ones later */
                   WISH_NONE,
                   WISH_SYNC,  /* SIGCONT: sync everything; mpirun sends it a second before SIGTERM */
                   WISH_TELL,  /* SIGUSR2: the same, and report the progress */
                   WISH_DRAIN, /* SIGUSR1: finish what is open, accept nothing new */
                   WISH_END,   /* SIGTERM, SIGINT, SIGHUP: end now */
                   WISH_FAIL   /* no signal: the job is about to be ended by a failure (signals_fail) */
};

/* Take SIGUSR1, SIGTERM, SIGINT and SIGHUP (unless it is ignored, as nohup has it) from now on; with `journal` also
 * SIGUSR2 and SIGCONT, which concern only a job that keeps a journal. Before MPI_Init: mpirun passes them on at any
 * time. */
int signals_open(bool journal, struct err *e);

/* A descriptor that becomes readable when a signal has come; -1 before signals_open. Any thread. */
int signals_fd(void);

/* Record the failure of the job, for the thread that reads signals_fd and reports it to others. Any thread; the first
 * failure counts. */
void signals_fail(const struct err *e);

/* The failure of the job, after WISH_FAIL was taken. */
const struct err *signals_failure(void);

/* A thread that reports a failure to others reads signals_fd from now on, or no longer. */
void signals_listen(bool listens);

/* That thread has reported the failure. */
void signals_reported(void);

/* Whether there is such a thread, and it has not yet reported the failure. Any thread. */
bool signals_unreported(void);

/* Whether a signal has come that signals_take has not returned yet. Cheap. */
bool signals_pending(void);

/* Whether SIGTERM, SIGINT or SIGHUP has come, taken or not. Any thread. */
bool signals_end_asked(void);

/* The strongest wish that has come since the last call; empties the descriptor. One thread only. */
enum signal_wish signals_take(void);

#endif
