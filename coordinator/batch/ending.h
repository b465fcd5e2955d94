/* coordinator/batch/ending.h - when and how a batch ends before its work is done: the job's walltime, signals, and the
 * exit status that follows. Pure: the time (seconds_now()) is an argument.
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
    double reserve; /* of --walltime-reserve; negative: learned */
    double
        drain_seconds;  /* after SIGUSR1: what runs may take so long, if the walltime allows; negative: as long as that
                             allows, or a minute where there is none */
    double end_seconds; /* the same after SIGTERM and SIGINT; 0 where the launcher kills soon */
};

struct ending {
    struct ending_setup setup;
    enum ending_state state;
    double until;        /* DRAIN: CUT follows then */
    double asked;        /* when SIGTERM or SIGINT came first; 0: they did not */
    double slowest_sync; /* seconds, of what was learned */
    double slowest_step;
    const char *cause; /* of the state, for the person: "SIGUSR1", "--max-walltime"; "" in RUN */
};

void ending_open(struct ending *g, const struct ending_setup *setup);

/* The wish of a signal that this process has got, or (own: false) another rank, which may be the same one once more. A
 * second SIGTERM or SIGINT of this process, a second and more after the first, ends the draining. */
void ending_signal(struct ending *g, enum signal_wish wish, bool own, double now);

/* Time passes: an earlier state never comes back. Returns the state. */
enum ending_state ending_turn(struct ending *g, double now);

/* Nothing that is left fits any more: what runs may finish until the limit. */
void ending_nothing_fits(struct ending *g);

/* Whether a request that needs this many seconds may start now. */
bool ending_fits(const struct ending *g, double need, double now);

/* Seconds that the end itself takes: learned from the slowest sync and step so far, unless --walltime-reserve says
 * it. */
double ending_reserve(const struct ending *g);
void ending_learn(struct ending *g, double sync_seconds, double step_seconds);

/* When work must be over; INFINITY: no limit. */
double ending_limit(const struct ending *g);

/* The exit status: ERR_RESUME (75) when anything is left, else 1 when a request has failed, else 0. */
int ending_status(bool unfinished, bool failed);

#endif
