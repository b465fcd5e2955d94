/* coordinator/batch/walltime.h - the time at which the job will be ended: --max-walltime, counted from the process's
 * start, or SLURM_JOB_END_TIME, whichever comes first. Pure: the caller passes clocks and environment. */
#ifndef BATCH_WALLTIME_H
#define BATCH_WALLTIME_H

#include "base/err.h"

struct walltime {
    double ends;        /* on seconds_now()'s clock; INFINITY: unknown */
    const char *source; /* the source: an option's or a variable's name; "": none */
};

/* One moment on three clocks, in seconds. */
struct walltime_now {
    double monotonic;     /* seconds_now() */
    double epoch;         /* since 1970 */
    double since_started; /* since the process was started; negative: not known, then it counts from this moment */
};

/* Seconds ("90", "0.5"), or as Slurm writes times: MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS. Parts but the first have
 * their usual bounds (59:60 is refused). "UNLIMITED", which squeue may say, is INFINITY. name: of the option, for
 * messages. */
int walltime_parse(double *seconds, const char *text, const char *name, struct err *e);

/* limit: of --max-walltime, job_end: of SLURM_JOB_END_TIME (seconds since 1970); NULL: not given. */
int walltime_open(struct walltime *w, const char *limit, const char *job_end, const struct walltime_now *now,
                  struct err *e);

/* "1-02:03:04", "2:03:04" or "3:04", the form that walltime_parse reads; "unlimited" for what is not finite. Negative:
 * "0:00". Returns text. */
#define WALLTIME_TEXT_BYTES 32
char *walltime_say(char text[WALLTIME_TEXT_BYTES], double seconds);

#endif
