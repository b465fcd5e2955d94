/* coordinator/batch/share.h - the lines of the input that a job processes when several jobs share it: tasks of a Slurm
 * job array, or --shard K/N. Line i (from 0, over all input files, empty ones counted) belongs to share i mod N. Pure:
 * the caller passes the environment. Lines are shared on request only: in an array {task} (or Slurm's %a) in the
 * output's name is such a request, otherwise the user has to decide. The share is part of the manifest, so an output
 * that belongs to another share is refused there. */
#ifndef BATCH_SHARE_H
#define BATCH_SHARE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum share_mode { SHARE_AUTO, SHARE_ON, SHARE_OFF }; /* --array-shard */

/* Slurm's variables, as text; NULL: not set. */
struct share_array {
    const char *task_id, *count, *min, *max, *step;
};

struct share {
    int64_t index, count; /* count 1: everything */
    int64_t task;         /* the value of {task}; -1: none */
};

/* option: --shard K/N, NULL: not given. output: the path of --output, which may request sharing. On failure *e says
 * what to do. */
int share_open(struct share *s, const char *option, enum share_mode mode, const struct share_array *array,
               const char *output, struct err *e);

static inline bool share_takes(const struct share *s, uint64_t line)
{
    return line % (uint64_t)s->count == (uint64_t)s->index;
}

/* Does the path have a place for the task's number, {task} or %a? */
bool share_has_place(const char *path);

/* The path with every {task} and %a replaced; -1 and *e: it is too long, or there is no task. */
int share_path(const struct share *s, char *out, size_t bytes, const char *path, struct err *e);

#endif
