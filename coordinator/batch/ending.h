/* coordinator/batch/ending.h - decides when and how a batch ends before its work is done, by walltime and signals, and
 * the exit status. Pure: the time (seconds_now()) is an argument.
 *
 *   RUN    what fits before the limit may start; what does not is left for the next run
 *   DRAIN  nothing starts any more, what has not begun is taken back, what runs may finish until `until`
 *   CUT    what runs is cancelled and left for the next run; the journal is synced and the job ends
 *
 * The limit is the walltime less a reserve for ending: syncing, writing the manifest, and letting the ranks go. */
#ifndef BATCH_ENDING_H
#define BATCH_ENDING_H

#include "base/signals.h"
#include "coordinator/batch/walltime.h"

#include <stdbool.h>
#include <stdint.h>

enum ending_state { ENDING_RUN, ENDING_DRAIN, ENDING_CUT };

struct ending_setup {
    struct walltime walltime;
    double reserve;       /* of --walltime-reserve; negative: learned */
    double drain_seconds; /* after SIGUSR1: seconds for running requests, if the walltime allows; negative: as long as
                          it allows, or a minute without a walltime */
    double end_seconds;   /* the same after SIGTERM and SIGINT; 0 where the launcher kills soon */
};

struct ending {
    struct ending_setup setup;
    enum ending_state state;
    double until;        /* DRAIN: CUT follows then */
    double asked;        /* when SIGTERM or SIGINT came first; 0: they did not */
    double slowest_sync; /* seconds, as measured so far */
    double slowest_step;
    const char *cause; /* cause of the state, for messages: "SIGUSR1", "--max-walltime"; "" in RUN */
};

void ending_open(struct ending *g, const struct ending_setup *setup);

/* A signal that this process (or, own: false, another rank) has received; a launcher may send the same signal to
 * several ranks. Another SIGTERM or SIGINT to this process, at least a second after the first, ends the draining. */
void ending_signal(struct ending *g, enum signal_wish wish, bool own, double now);

/* Updates the state for this time; a state is never left for an earlier one. Returns the state. */
enum ending_state ending_turn(struct ending *g, double now);

/* To be called if no remaining line fits any more: running requests may finish until the limit. */
void ending_nothing_fits(struct ending *g);

/* Whether a request that needs this many seconds may start now. */
bool ending_fits(const struct ending *g, double need, double now);

/* Seconds that the end itself takes: derived from the slowest sync and step so far, unless --walltime-reserve gives
 * it. */
double ending_reserve(const struct ending *g);
void ending_learn(struct ending *g, double sync_seconds, double step_seconds);

/* When work must be over; INFINITY: no limit. */
double ending_limit(const struct ending *g);

/* The exit status: ERR_RESUME (75) when anything is left, else 1 when a request has failed, else 0. */
int ending_status(bool unfinished, bool failed);

#endif
