/* coordinator/batch/slurm.h - the job's requests to Slurm, by scontrol: to requeue it, and to show a comment. Pure but
 * for slurm_requeue and slurm_comment_*; variables of the environment come in as text. */
#ifndef BATCH_SLURM_H
#define BATCH_SLURM_H

#include "coordinator/batch/child.h"

#include <stdint.h>

#define SLURM_ID_BYTES      48
#define SLURM_COMMENT_BYTES 256

struct slurm_environment { /* NULL: not set */
    const char *job_id, *array_job_id, *array_task_id, *restart_count;
};

struct slurm_job {
    char id[SLURM_ID_BYTES]; /* "1234"; of a task of an array "1234_5": a bare number may mean the whole array */
    int64_t restarts;        /* number of requeues before this run */
};

/* option: what needs the job, for messages. Refused outside of Slurm. */
int slurm_job_open(struct slurm_job *j, const struct slurm_environment *v, const char *option, struct err *e);

/* May a job that ends with work left be requeued? NULL: yes; otherwise the reason. n_new: results added by this run;
 * without this condition a job that fails at its start would be requeued forever. told_to_end: SIGTERM or SIGINT was
 * received, as from scancel, which is meant to end the job. */
const char *slurm_requeue_obstacle(const struct slurm_job *j, int64_t max_restarts, uint64_t n_new, bool told_to_end);

/* scontrol requeue; waits for it, up to 20 s. From its success on Slurm may end this job at any time. */
int slurm_requeue(const struct slurm_job *j, struct err *e);

/* The job's comment, as squeue -o %k shows it: updated at most once a minute by a child process, without waiting for
 * it. */
struct slurm_comment {
    const struct slurm_job *job; /* borrowed; NULL: no comment is wanted */
    struct child child;
    double due;
    bool failed; /* a failure was reported */
};

/* Is a new comment due? Also checks the child, and reports the first failure. */
bool slurm_comment_due(struct slurm_comment *c, double now);
/* Control characters and quotes in the text become blanks. */
void slurm_comment_set(struct slurm_comment *c, const char *text, double now);
/* A comment that is under way gets one second. */
void slurm_comment_close(struct slurm_comment *c);

#endif
