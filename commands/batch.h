/* commands/batch.h - `lockstep batch` on rank 0: the batch thread with its files (coordinator/batch/runner.h) and the
 * main thread's part (commands/front.h). */
#ifndef COMMANDS_BATCH_H
#define COMMANDS_BATCH_H

#include "commands/front.h"
#include "coordinator/batch/runner.h"
#include "partition/checkpoint.h"

#define BATCH_PATH_BYTES 4096

struct batch_run { /* zeroed at first */
    struct front front;
    struct batch_options o; /* with the names of files for this task of a job array */
    char output[BATCH_PATH_BYTES], status_file[BATCH_PATH_BYTES + 16], metrics_file[BATCH_PATH_BYTES],
        log_dir[BATCH_PATH_BYTES];
    bool in_slurm;
    struct slurm_job job; /* if in_slurm */
    struct runner runner;
};

/* Reads tokenizer and chat template, checks and opens all files: errors show before the model is loaded. Rank 0. batch:
 * the struct batch_run, as in all three; options: struct batch_options. */
int batch_open(void *batch, const void *options, const struct model_config *m, const struct checkpoint *c, int n_ranks,
               struct err *e);

/* The same for several models, which are opened later: options and names of files, before runner_open. */
int batch_prepare_many(struct batch_run *b, const struct batch_options *o, struct runner_setup *setup, struct err *e);

/* Hashes and names that must match when a run resumes with a model's results. The caller's; NULL and *e on failure. */
struct json_t *batch_identify(const struct checkpoint *c, const struct served *served, struct err *e);

/* The model is loaded. */
int batch_start(void *batch, const struct limits *l, struct err *e);

/* After the loop has ended: writes and syncs the last results. Returns the exit status; a failure of input or output is
 * in *e. */
int batch_close(void *batch, struct err *e);

/* Called before this failure, of any rank, ends the job at its start. */
void batch_give_up(void *batch, const struct err *why);

#endif
