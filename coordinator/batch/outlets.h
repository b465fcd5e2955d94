/* coordinator/batch/outlets.h - the progress of a batch for operators: a bar on a terminal or a line per minute, the
 * status file, the metrics file, the Slurm job's comment. A failure of one of them is reported once and never ends the
 * job. Used by the batch thread only. */
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
    const struct slurm_job *commented; /* borrowed; NULL: no comment */
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

/* Writes the outputs that are due. m: the engine's and the ranks' figures. */
void outlets_show(struct outlets *out, const struct status *s, const struct metrics *m, double now);

/* To be called when the state has changed, which makes the files due. */
void outlets_soon(struct outlets *out);

/* After SIGUSR2: writes line and files now. */
void outlets_tell(struct outlets *out, const struct status *s, const struct metrics *m, double now);

/* A failure is about to end the job and prints its own line: the status file records it, the metrics file is
 * removed. */
void outlets_fail(struct outlets *out, const struct status *s, double now);

/* Erases the bar for another line; the next outlets_show draws it again. */
void outlets_clear(struct outlets *out);

/* Shows the final state in line, status file and comment; removes the metrics file, which would otherwise be read
 * forever. */
void outlets_close(struct outlets *out, const struct status *s, double now);

#endif
