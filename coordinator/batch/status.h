/* coordinator/batch/status.h - the progress of a batch: one snapshot, and its forms for people, files and Slurm. Pure.
 * An unknown or unmeasured value is absent (null in JSON), never 0. */
#ifndef BATCH_STATUS_H
#define BATCH_STATUS_H

#include "coordinator/batch/share.h"
#include "coordinator/batch/speed.h"
#include "coordinator/metrics/metrics.h"

#include <jansson.h>

enum status_state { STATUS_LOADING, STATUS_RUNNING, STATUS_DRAINING, STATUS_ENDED, STATUS_FAILED };

struct status { /* strings are borrowed */
    enum status_state state;
    const char *cause; /* the reason why it drains, has failed, or ended before all was done; "" */
    int exit_status;   /* STATUS_ENDED, STATUS_FAILED */

    const char *model, *output, *host, *job; /* job: of Slurm, NULL: none */
    int n_ranks, n_replicas;
    struct share share;
    double started, updated; /* seconds since 1970 */

    /* Lines of the input that are not empty, of this share. */
    int64_t n_read, n_before, n_done, n_failed,
        n_duplicates;         /* n_before: done by earlier runs; n_done, n_failed: by this one */
    int64_t n_failed_before;  /* errors that earlier runs left in the output */
    int64_t n_open;           /* read and not done yet, */
    int n_running, n_waiting; /* sequences of these in the engine */
    int64_t n_left;           /* read, and left to the next run */
    double total;             /* expected number of all lines; NAN: unknown. See status_total */
    bool total_is_known;      /* otherwise it is an estimate */
    int64_t prompt_tokens, cached_tokens, output_tokens; /* of this run */
    struct speed_counts speed;                           /* NAN: too early to tell */

    double walltime_left;        /* seconds; INFINITY: no walltime */
    const char *walltime_source; /* its source */
    int64_t journal_bytes, unsynced_bytes;
    double joules; /* of all ranks' devices, this run; NAN: not measured */
};

/* The expected number of lines: n_read at the end of the input, before that an estimate from the bytes read. */
double status_total(int64_t n_read, bool at_end, int64_t input_bytes, int64_t input_bytes_read);

/* Seconds until all is done at the present speed; NAN: unknown. */
double status_eta(const struct status *s);
/* Joules per token, of prompts and outputs together, without tokens from the prefix cache; NAN: not measured. */
double status_joules_per_token(const struct status *s);

/* "120 of about 500 requests (24 %), 3 failed, ..": without a newline. */
void status_line(const struct status *s, char *text, size_t bytes);
/* The text after a progress bar, which shows the counts itself. */
void status_note(const struct status *s, char *text, size_t bytes);
/* For squeue: "done=120/500 failed=3 tok/s=1234 eta=1:02". */
void status_comment(const struct status *s, char *text, size_t bytes);

/* NULL: out of memory. The caller owns it. */
json_t *status_json(const struct status *s);
/* Prometheus' text, with the engine's and the ranks' figures, appended to *out. */
int status_metrics(const struct status *s, const struct metrics *m, struct text_buffer *out, struct err *e);

#endif
