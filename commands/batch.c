/* commands/batch.c - see batch.h. */
#include "commands/batch.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "coordinator/batch/fingerprint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define STATUS_ENDING  ".status.json"
#define SYNC_SECONDS   5.0
#define STATUS_SECONDS 60.0
#define MAX_RESTARTS   20

static int check_options(const struct batch_options *o, struct err *e)
{
    if (o->n_input == 0)
        return ERR(e, ERR_USAGE, "batch needs --input FILE");
    if (o->output == NULL)
        return ERR(e, ERR_USAGE, "batch needs --output FILE");
    if ((o->force || o->retry_failed) && o->resume == RESUME_NEVER)
        return ERR(e, ERR_USAGE, "--%s and --resume never: expected one of them", o->force ? "force" : "retry-failed");
    if (o->status_seconds >= 0 && o->service.run.progress == PROGRESS_ALWAYS)
        return ERR(e, ERR_USAGE, "--status-seconds and --progress always: a bar is shown instead of lines");
    if (o->max_restarts >= 0 && !o->requeue_self)
        return ERR(e, ERR_USAGE, "--max-restarts belongs to --requeue-self, which is not given");
    return models_options_check(&o->models, e);
}

static void set_defaults(struct batch_options *o)
{
    o->sync_seconds = o->sync_seconds >= 0 ? o->sync_seconds : SYNC_SECONDS;
    o->status_seconds = o->status_seconds >= 0 ? o->status_seconds : STATUS_SECONDS;
    o->max_restarts = o->max_restarts >= 0 ? o->max_restarts : MAX_RESTARTS;
}

/* A file's name for this task; NULL stays NULL. */
static int name_file(const char **name, char *storage, const struct share *share, struct err *e)
{
    if (*name == NULL)
        return 0;
    if (share_path(share, storage, BATCH_PATH_BYTES, *name, e) != 0)
        return -1;
    *name = storage;
    return 0;
}

/* Or will be one. */
static bool is_file(const char *output)
{
    struct stat st;
    return strcmp(output, "-") != 0 && (stat(output, &st) != 0 || S_ISREG(st.st_mode));
}

/* An output that is not a regular file is neither synced nor resumed. */
static int check_output(const struct batch_options *o, struct err *e)
{
    const char *option = o->ordered             ? "--ordered"
                         : o->force             ? "--force"
                         : o->retry_failed      ? "--retry-failed"
                         : o->sync_seconds >= 0 ? "--sync-seconds"
                                                : NULL;
    if (option != NULL && !is_file(o->output))
        return ERR(e, ERR_USAGE, "%s needs an --output that is a file", option);
    return 0;
}

/* This job's share of the lines, and the names of its files. */
static int take_share(struct batch_run *b, struct share *share, struct err *e)
{
    const struct share_array array = {
        environment_value("SLURM_ARRAY_TASK_ID"), environment_value("SLURM_ARRAY_TASK_COUNT"),
        environment_value("SLURM_ARRAY_TASK_MIN"), environment_value("SLURM_ARRAY_TASK_MAX"),
        environment_value("SLURM_ARRAY_TASK_STEP")};
    struct batch_options *o = &b->o;
    if (share_open(share, o->shard, (enum share_mode)o->array_shard, &array, o->output, e) != 0 ||
        name_file(&o->output, b->output, share, e) != 0 || name_file(&o->status_file, b->status_file, share, e) != 0 ||
        name_file(&o->service.metrics_file, b->metrics_file, share, e) != 0 ||
        name_file(&o->service.log_dir, b->log_dir, share, e) != 0)
        return -1;
    if (o->status_file == NULL && is_file(b->output)) {
        (void)snprintf(b->status_file, sizeof b->status_file, "%s%s", b->output, STATUS_ENDING);
        o->status_file = b->status_file;
    }
    return 0;
}

static int find_limits(struct ending_setup *ending, const struct batch_options *o, struct err *e)
{
    struct timespec epoch;
    (void)clock_gettime(CLOCK_REALTIME, &epoch);
    const struct walltime_now now = {.monotonic = seconds_now(),
                                     .epoch = (double)epoch.tv_sec + 1e-9 * (double)epoch.tv_nsec,
                                     .since_started = seconds_since_exec()};
    *ending = (struct ending_setup){.reserve = o->walltime_reserve,
                                    .drain_seconds = (double)o->drain_seconds,
                                    .end_seconds = service_end_seconds(&o->service)};
    const char *job_end = environment_value("SLURM_JOB_END_TIME");
    if (o->walltime_reserve >= 0 && o->max_walltime == NULL && job_end == NULL)
        return ERR(e, ERR_USAGE,
                   "--walltime-reserve needs a walltime: neither --max-walltime nor SLURM_JOB_END_TIME is set");
    double limit = INFINITY;
    if (o->max_walltime != NULL && walltime_parse(&limit, o->max_walltime, "max-walltime", e) != 0)
        return -1;
    if (o->walltime_reserve >= limit)
        return ERR(e, ERR_USAGE, "--walltime-reserve %g: expected less than the %g s of --max-walltime %s",
                   o->walltime_reserve, limit, o->max_walltime);
    return walltime_open(&ending->walltime, o->max_walltime, job_end, &now, e);
}

static int find_job(struct batch_run *b, struct err *e)
{
    const struct slurm_environment v = {environment_value("SLURM_JOB_ID"), environment_value("SLURM_ARRAY_JOB_ID"),
                                        environment_value("SLURM_ARRAY_TASK_ID"),
                                        environment_value("SLURM_RESTART_COUNT")};
    const char *option = b->o.requeue_self ? "--requeue-self" : "--slurm-comment";
    if (!b->o.requeue_self && !b->o.slurm_comment)
        return 0;
    b->in_slurm = true;
    return slurm_job_open(&b->job, &v, option, e);
}

/* All settings but the model: options, share, output, limits, job. */
static int open_surroundings(struct batch_run *b, struct runner_setup *setup, struct err *e)
{
    if (check_options(&b->o, e) != 0 || take_share(b, &setup->share, e) != 0 || check_output(&b->o, e) != 0 ||
        find_limits(&setup->ending, &b->o, e) != 0 || find_job(b, e) != 0)
        return -1;
    set_defaults(&b->o);
    setup->outlets = (struct outlets_setup){.progress = (enum progress_mode)b->o.service.run.progress,
                                            .status_seconds = b->o.status_seconds,
                                            .status_file = b->o.status_file,
                                            .metrics_file = b->o.service.metrics_file,
                                            .commented = b->o.slurm_comment ? &b->job : NULL};
    return 0;
}

/* At the very end, since Slurm may kill the job as soon as it is queued again. */
static void requeue(const struct batch_run *b, uint64_t n_new, bool told_to_end)
{
    struct err e = {0};
    const char *obstacle = slurm_requeue_obstacle(&b->job, b->o.max_restarts, n_new, told_to_end);
    if (obstacle != NULL)
        log_warn("--requeue-self: job %s is not requeued: %s", b->job.id, obstacle);
    else if (slurm_requeue(&b->job, &e) != 0)
        log_warn("--requeue-self: %s", e.text);
    else
        log_note("job %s is requeued", b->job.id);
}

int batch_open(void *batch, const void *options, const struct model_config *m, const struct checkpoint *c, int n_ranks,
               struct err *e)
{
    struct batch_run *b = batch;
    b->o = *(const struct batch_options *)options;
    struct runner_setup setup = {.o = &b->o, .checkpoint = c, .n_ranks = n_ranks};
    if (open_surroundings(b, &setup, e) != 0 || front_open(&b->front, &b->o.service, m, n_ranks, e) != 0)
        return -1;
    b->front.replicas = &b->runner.replicas;
    setup.served = b->front.texts.served;
    setup.served.model.path = b->o.service.run.model;
    setup.name = setup.served.model.name;
    setup.n_replicas = b->front.n_replicas;
    return runner_open(&b->runner, &setup, e);
}

int batch_prepare_many(struct batch_run *b, const struct batch_options *o, struct runner_setup *setup, struct err *e)
{
    b->o = *o;
    *setup = (struct runner_setup){.o = &b->o, .name = b->o.models.dir};
    return open_surroundings(b, setup, e);
}

json_t *batch_identify(const struct checkpoint *c, const struct served *served, struct err *e)
{
    json_t *model = fingerprint_model(c, e);
    const char *chat = served->chat != NULL ? chat_template_name(served->chat) : NULL;
    if (model == NULL)
        return NULL;
    if (served->variant != NULL)
        (void)json_object_set_new(model, "variant", json_string(served->variant));
    (void)json_object_set_new(model, "chat_template", chat != NULL ? json_string(chat) : json_null());
    return model;
}

int batch_start(void *batch, const struct limits *l, struct err *e)
{
    struct batch_run *b = batch;
    return front_start(&b->front, l, e) == 0 ? runner_start(&b->runner, e) : -1;
}

int batch_close(void *batch, struct err *e)
{
    struct batch_run *b = batch;
    front_end(&b->front, e);
    const struct runner_outcome outcome = runner_close(&b->runner, e);
    if (outcome.status == ERR_RESUME && e->code == ERR_NONE && b->o.requeue_self)
        requeue(b, (uint64_t)outcome.n_new, outcome.told_to_end);
    front_close(&b->front);
    return outcome.status;
}

void batch_give_up(void *batch, const struct err *why)
{
    struct batch_run *b = batch;
    runner_give_up(&b->runner, why);
}
