/* coordinator/batch/slurm.c - see slurm.h. */
#include "coordinator/batch/slurm.h"
#include "base/clock.h"
#include "base/log.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEUE_SECONDS 20.0
#define COMMENT_SECONDS 60.0 /* between two comments: each is a message to the controller, which all jobs share */
#define COMMENT_LIMIT   30.0 /* for one comment */
#define CLOSE_SECONDS   1.0  /* for a comment that is under way at the end */

static bool is_number(const char *text)
{
    size_t digits = text != NULL ? strspn(text, "0123456789") : 0;
    return digits > 0 && digits <= 18 && text[digits] == '\0';
}

int slurm_job_open(struct slurm_job *j, const struct slurm_environment *v, const char *option, struct err *e)
{
    memset(j, 0, sizeof *j);
    if (v->job_id == NULL)
        return ERR(e, ERR_USAGE, "%s: this is not a Slurm job (SLURM_JOB_ID is not set)", option);
    if (!is_number(v->job_id))
        return ERR(e, ERR_USAGE, "environment variable SLURM_JOB_ID: found \"%.80s\", expected a number", v->job_id);
    if (v->restart_count != NULL && !is_number(v->restart_count))
        return ERR(e, ERR_USAGE, "environment variable SLURM_RESTART_COUNT: found \"%.80s\", expected a number",
                   v->restart_count);
    j->restarts = v->restart_count != NULL ? strtoll(v->restart_count, NULL, 10) : 0;
    if (v->array_task_id == NULL) {
        (void)snprintf(j->id, sizeof j->id, "%s", v->job_id);
        return 0;
    }
    if (!is_number(v->array_job_id) || !is_number(v->array_task_id))
        return ERR(e, ERR_USAGE,
                   "environment variables SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID: found \"%.40s\" and \"%.40s\", "
                   "expected two numbers",
                   v->array_job_id != NULL ? v->array_job_id : "", v->array_task_id);
    (void)snprintf(j->id, sizeof j->id, "%s_%s", v->array_job_id, v->array_task_id);
    return 0;
}

const char *slurm_requeue_obstacle(const struct slurm_job *j, int64_t max_restarts, uint64_t n_new, bool told_to_end)
{
    if (told_to_end)
        return "SIGTERM or SIGINT told it to end";
    if (n_new == 0)
        return "this run has added no result";
    if (j->restarts >= max_restarts)
        return "--max-restarts is reached";
    return NULL;
}

int slurm_requeue(const struct slurm_job *j, struct err *e)
{
    const char *const argv[] = {"scontrol", "requeue", j->id, NULL};
    struct child c;
    if (child_start(&c, argv, seconds_now(), REQUEUE_SECONDS, e) != 0)
        return -1;
    int status = child_wait(&c);
    if (status != 0)
        return ERR(e, ERR_IO, "scontrol requeue %s: ended with status %d", j->id, status);
    return 0;
}

bool slurm_comment_due(struct slurm_comment *c, double now)
{
    int status = 0;
    if (c->job == NULL)
        return false;
    if (child_ended(&c->child, now, &status) && status != 0 && !c->failed) {
        c->failed = true;
        log_warn("--slurm-comment: scontrol update JobId=%s ended with status %d", c->job->id, status);
    }
    return c->child.pid == 0 && now >= c->due;
}

void slurm_comment_set(struct slurm_comment *c, const char *text, double now)
{
    char job[SLURM_ID_BYTES + 8], comment[SLURM_COMMENT_BYTES];
    struct err e = {0};
    (void)snprintf(job, sizeof job, "JobId=%s", c->job->id);
    (void)snprintf(comment, sizeof comment, "Comment=%s", text);
    for (char *at = comment; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at) || *at == '"' || *at == '\'')
            *at = ' ';
    const char *const argv[] = {"scontrol", "update", job, comment, NULL};
    c->due = now + COMMENT_SECONDS;
    if (child_start(&c->child, argv, now, COMMENT_LIMIT, &e) != 0 && !c->failed) {
        c->failed = true;
        log_warn("--slurm-comment: %s", e.text);
    }
}

void slurm_comment_close(struct slurm_comment *c)
{
    double soon = seconds_now() + CLOSE_SECONDS;
    c->child.until = c->child.until < soon ? c->child.until : soon;
    (void)child_wait(&c->child);
}
