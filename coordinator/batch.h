/* coordinator/batch.h - `lockstep batch` on rank 0: the batch thread with its files (coordinator/batch/runner.h) and the main
 * thread's scheduler (coordinator/server/steps.h), seen by main.c as the functions of a loop's client. */
#ifndef COORDINATOR_BATCH_H
#define COORDINATOR_BATCH_H

#include "coordinator/batch/runner.h"
#include "coordinator/groups/hub.h"
#include "partition/checkpoint.h"
#include "partition/model.h"
#include "rank/rank_stats.h"

#define BATCH_PATH_BYTES 4096

struct batch_run {
    struct options o; /* with names of files as they are for this task of a job array */
    char output[BATCH_PATH_BYTES], status_file[BATCH_PATH_BYTES + 16], metrics_file[BATCH_PATH_BYTES],
        log_dir[BATCH_PATH_BYTES];
    bool in_slurm;
    struct slurm_job job; /* if in_slurm */
    struct tokenizer *tokenizer;
    struct chat_template *chat; /* NULL: none that we know */
    char name[256];             /* of the model */
    int rope_changes_at;
    struct runner runner;
    struct steps steps;
    struct hub hub; /* the other groups, if there are any */
};

/* Read tokenizer and chat template, check and open all files: whatever is wrong shows before the model is loaded. Rank 0. */
int batch_open(struct batch_run *b, const struct options *o, const struct model_config *m, const struct checkpoint *c,
               int n_ranks, struct err *e);

/* The model is loaded. */
int batch_start(struct batch_run *b, const struct limits *l, struct err *e);

/* The functions of struct loop_client; and what all ranks measured. context: the struct batch_run. */
int batch_next(void *context, struct plan *plan, struct err *e);
int batch_accept(void *context, const struct step_result *result, struct err *e);
void batch_signal(void *context, enum signal_wish wish);
void batch_ranks(void *context, const struct rank_report *report);

/* After the loop has ended: the last results are written and safe. Returns the exit status; a failure of input or output is
 * in *e. Safe on a zeroed struct. */
int batch_close(struct batch_run *b, struct err *e);

#endif
