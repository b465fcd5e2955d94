/* coordinator/batch/outlets.h - where operators look while a batch runs: a bar on a terminal or a line a minute, the
 * status file, the metrics file, the Slurm job's comment. A failure of one of them is reported once and never ends the
 * job. The batch thread's. */
#ifndef BATCH_OUTLETS_H
#define BATCH_OUTLETS_H

#include "base/progress.h"
#include "coordinator/batch/slurm.h"
#include "coordinator/batch/status.h"

struct outlets_setup {
    enum progress_mode progress;
    double status_seconds;             /* between lines; 0: none */
    const char *status_file;           /* borrowed; NULL: none */
    const char *metrics_file;          /* borrowed; NULL: none */
    const struct slurm_job *commented; /* borrowed; NULL: no comment is wanted */
};

struct outlets {
    struct outlets_setup setup;
    struct progress bar;
    struct slurm_comment comment;
    double line_due, files_due;         /* seconds_now() */
    bool status_failed, metrics_failed; /* said */
};

void outlets_open(struct outlets *out, const struct outlets_setup *setup, double now);

/* Seconds until something is due; 0: now. */
double outlets_wait(const struct outlets *out, double now);

/* Show what is due. m: the engine's and the ranks' figures. */
void outlets_show(struct outlets *out, const struct status *s, const struct metrics *m, double now);

/* The state has changed: the files are due. */
void outlets_soon(struct outlets *out);

/* Somebody has asked (SIGUSR2): line and files now. */
void outlets_tell(struct outlets *out, const struct status *s, const struct metrics *m, double now);

/* The job is about to be ended by a failure, which says its own line: the status file says so, the metrics file is
 * removed. */
void outlets_fail(struct outlets *out, const struct status *s, double now);

/* The bar goes away for a line of another's; the next outlets_show draws it again. */
void outlets_clear(struct outlets *out);

/* The last picture: line, status file, comment; the metrics file, which would be read for ever, is removed. */
void outlets_close(struct outlets *out, const struct status *s, double now);

#endif
