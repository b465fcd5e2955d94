/* coordinator/batch/batch_options.h - options of `batch`. */
#ifndef BATCH_BATCH_OPTIONS_H
#define BATCH_BATCH_OPTIONS_H

#include "base/sampling_options.h"
#include "coordinator/models/models_options.h"
#include "coordinator/tasks/service_options.h"

#define BATCH_MAX_INPUT 256

enum resume_choice { RESUME_AUTO, RESUME_ALWAYS, RESUME_NEVER };

/* Strings are borrowed from argv or the environment. Numbers that were not given are negative. */
struct batch_options {
    struct service_options service;
    struct models_options models;
    struct sampling_options sampling;   /* defaults for lines */
    const char *input[BATCH_MAX_INPUT]; /* [n_input] */
    const char *output;
    int64_t n_input, resume, max_inflight;
    double sync_seconds;
    bool plain, ordered, force, retry_failed;
    /* how the batch ends, and its progress and status */
    const char *max_walltime, *shard, *status_file;
    int64_t drain_seconds, array_shard, max_restarts;
    double walltime_reserve, status_seconds;
    bool requeue_self, slurm_comment;
};

extern const struct opt_rows batch_rows;

#endif
