/* coordinator/batch/runner_status.c - a snapshot of the run for operators (coordinator/batch/status.h). See
 * runner.h. */
#include "base/clock.h"
#include "base/environment.h"
#include "coordinator/batch/runner.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

static double epoch_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tokens as they are generated, including those of requests under way. */
static struct speed_counts counts_of(const struct batch_progress *p, const struct scheduler_stats *stats)
{
    return (struct speed_counts){(double)p->n_done, (double)stats->n_prompt_tokens, (double)stats->n_output_tokens};
}

static struct status picture(struct runner *r, enum status_state state, double now)
{
    const struct batch_progress *p = &r->progress;
    const struct scheduler_stats stats = replicas_stats(&r->replicas);
    const struct speed_counts counts = counts_of(p, &stats);
    double total = status_total(p->n_read, p->at_end, p->input_bytes, p->input_bytes_read);
    const char *cause = r->end.failure.code != ERR_NONE ? r->end.failure.text : r->end.ending.cause;
    if (state == STATUS_ENDED && cause[0] == '\0' && p->n_left > 0) /* they did not fit */
        cause = r->setup.ending.walltime.source;
    if (p->loaded > 0)
        speed_note(&r->view.speed, &counts, now);
    return (struct status){.state = state,
                           .cause = cause,
                           .model = r->setup.name,
                           .output = r->setup.o->output,
                           .host = r->view.host,
                           .job = environment_value("SLURM_JOB_ID"),
                           .n_ranks = r->setup.n_ranks,
                           .n_replicas = r->setup.n_replicas,
                           .share = r->setup.share,
                           .started = r->view.started_epoch,
                           .updated = epoch_now(),
                           .n_read = p->n_read,
                           .n_before = p->n_before,
                           .n_done = p->n_done,
                           .n_failed = p->n_failed,
                           .n_failed_before = p->n_failed_before,
                           .n_duplicates = p->n_duplicates,
                           .n_open = p->n_open,
                           .n_running = stats.n_running,
                           .n_waiting = stats.n_waiting + r->lines.n_ready + r->lines.held.n,
                           .n_left = p->n_left,
                           .total = total,
                           .total_is_known = p->at_end,
                           .prompt_tokens = p->prompt_tokens,
                           .cached_tokens = p->cached_tokens,
                           .output_tokens = p->output_tokens,
                           .speed = speed_of(&r->view.speed, &counts, now),
                           .walltime_left = r->setup.ending.walltime.ends - now,
                           .walltime_source = r->setup.ending.walltime.source,
                           .journal_bytes = r->files.journal.bytes,
                           .unsynced_bytes = r->files.journal.unsynced,
                           .joules = replicas_joules(&r->replicas)};
}

static enum status_state state_of(const struct runner *r)
{
    return r->state == RUNNER_LOADING ? STATUS_LOADING : r->state == RUNNER_RUNNING ? STATUS_RUNNING : STATUS_DRAINING;
}

void runner_show_start(struct runner *r)
{
    double now = seconds_now(), since = seconds_since_exec();
    r->view.started_epoch = epoch_now() - (since > 0 ? since : 0);
    if (gethostname(r->view.host, sizeof r->view.host - 1) != 0)
        r->view.host[0] = '\0';
    outlets_open(&r->view.outlets, &r->setup.outlets, now);
    struct status s = picture(r, STATUS_LOADING, now);
    outlets_show(&r->view.outlets, &s, &r->metrics, now);
}

void runner_show(struct runner *r, double now)
{
    if (r->state == RUNNER_ENDED || r->end.broken || outlets_wait(&r->view.outlets, now) > 0)
        return;
    struct status s = picture(r, state_of(r), now);
    outlets_show(&r->view.outlets, &s, &r->metrics, now);
}

void runner_tell(struct runner *r, double now)
{
    struct status s = picture(r, state_of(r), now);
    outlets_tell(&r->view.outlets, &s, &r->metrics, now);
}

void runner_show_failure(struct runner *r, const struct err *why)
{
    double now = seconds_now();
    struct status s = picture(r, STATUS_FAILED, now);
    s.cause = why->text;
    s.exit_status = (int)why->code;
    outlets_fail(&r->view.outlets, &s, now);
}

/* Figures of the whole run, and of the output. */
static struct speed_counts mean_speed(const struct runner *r, double now)
{
    const struct batch_progress *p = &r->progress;
    const struct speed_counts c = {(double)p->n_done, (double)p->prompt_tokens, (double)p->output_tokens};
    double seconds = p->loaded > 0 ? now - p->loaded : 0;
    return seconds > 0
               ? (struct speed_counts){c.requests / seconds, c.prompt_tokens / seconds, c.output_tokens / seconds}
               : (struct speed_counts){NAN, NAN, NAN};
}

void runner_show_end(struct runner *r, int status)
{
    double now = seconds_now();
    struct status s = picture(r, STATUS_ENDED, now);
    s.speed = mean_speed(r, now);
    s.exit_status = status;
    outlets_close(&r->view.outlets, &s, now);
}
