/* coordinator/tasks/service_options.h - options of `serve` and `batch` alike. */
#ifndef TASKS_SERVICE_OPTIONS_H
#define TASKS_SERVICE_OPTIONS_H

#include "base/run_options.h"

/* Strings are borrowed from argv or the environment. */
struct service_options {
    struct run_options run;
    const char *served_name, *chat_template, *metrics_file, *log_dir;
    int64_t max_reply_bytes, end_seconds;
};

extern const struct opt_rows service_rows;

/* The model's name: --served-model-name, otherwise the last part of the folder's path. Truncated to fit. */
void service_model_name(const struct service_options *o, char *name, size_t bytes);

/* The time after SIGTERM or SIGINT, in seconds: --end-seconds, otherwise 20 under srun, since Slurm's KillWait is 30
 * by default, and 0 under mpirun, which kills a second later. */
double service_end_seconds(const struct service_options *o);

#endif
