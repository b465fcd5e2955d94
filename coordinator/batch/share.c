/* coordinator/batch/share.c - see share.h. */
#include "coordinator/batch/share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHARES 1000000000LL

static const char *const places[] = {"{task}", "%a"};

/* Digits only; returns what follows them, NULL: none, or too large. */
static const char *read_integer(const char *text, int64_t *n)
{
    char *end = NULL;
    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    *n = strtoll(text, &end, 10);
    return errno == 0 && *n <= MAX_SHARES ? end : NULL;
}

static int read_option(struct share *s, const char *text, struct err *e)
{
    const char *slash = read_integer(text, &s->index);
    const char *end = slash != NULL && *slash == '/' ? read_integer(slash + 1, &s->count) : NULL;
    if (end == NULL || *end != '\0' || s->count < 1 || s->index >= s->count)
        return ERR(e, ERR_USAGE, "--shard: found \"%.80s\", expected K/N with K from 0 to N - 1", text);
    s->task = s->index;
    return 0;
}

static int read_variable(const char *name, const char *text, int64_t *n, struct err *e)
{
    const char *end = text != NULL ? read_integer(text, n) : NULL;
    if (end == NULL || *end != '\0')
        return ERR(e, ERR_USAGE, "environment variable %s: found \"%.80s\", expected an integer", name,
                   text != NULL ? text : "");
    return 0;
}

/* Tasks min, min + step, .. max are shares 0, 1, ..; other lists of tasks are not known here. */
static int read_array(struct share *s, const struct share_array *a, struct err *e)
{
    int64_t count, min, max, step = 1;
    if (read_variable("SLURM_ARRAY_TASK_ID", a->task_id, &s->task, e) != 0 ||
        read_variable("SLURM_ARRAY_TASK_COUNT", a->count, &count, e) != 0 ||
        read_variable("SLURM_ARRAY_TASK_MIN", a->min, &min, e) != 0 ||
        read_variable("SLURM_ARRAY_TASK_MAX", a->max, &max, e) != 0 ||
        (a->step != NULL && read_variable("SLURM_ARRAY_TASK_STEP", a->step, &step, e) != 0))
        return -1;
    int64_t from_min = s->task - min;
    if (count < 1 || step < 1 || from_min < 0 || s->task > max || from_min % step != 0 ||
        max != min + (count - 1) * step)
        return ERR(e, ERR_USAGE,
                   "task %" PRId64 " of %" PRId64 " tasks %" PRId64 "..%" PRId64 " by %" PRId64
                   ": a job array with gaps has no shares of its own; use --shard K/N",
                   s->task, count, min, max, step);
    s->index = from_min / step;
    s->count = count;
    return 0;
}

bool share_has_place(const char *path)
{
    return strstr(path, places[0]) != NULL || strstr(path, places[1]) != NULL;
}

/* In a job array the number is known, whether the input is shared or not. */
static int know_task(struct share *s, const struct share_array *a, struct err *e)
{
    return a->task_id == NULL ? 0 : read_variable("SLURM_ARRAY_TASK_ID", a->task_id, &s->task, e);
}

int share_open(struct share *s, const char *option, enum share_mode mode, const struct share_array *array,
               const char *output, struct err *e)
{
    *s = (struct share){.index = 0, .count = 1, .task = -1};
    bool place = share_has_place(output);
    if (option != NULL && mode != SHARE_AUTO)
        return ERR(e, ERR_USAGE, "--shard and --array-shard: expected one of them");
    if (option != NULL)
        return read_option(s, option, e);
    if (array->task_id == NULL && (mode == SHARE_ON || place))
        return ERR(e, ERR_USAGE, "%s: this is not a task of a Slurm job array; use --shard K/N",
                   mode == SHARE_ON ? "--array-shard on" : "--output with {task} or %a");
    bool alone = array->count != NULL && strcmp(array->count, "1") == 0; /* most likely one task that is repeated */
    if (mode == SHARE_AUTO && place && alone)
        return ERR(e, ERR_USAGE,
                   "a job array of one task, %.20s: its share of the input is unknown; use --shard K/N, or "
                   "--array-shard on or off",
                   array->task_id);
    if (mode == SHARE_ON || (mode == SHARE_AUTO && place))
        return read_array(s, array, e);
    if (mode == SHARE_AUTO && array->task_id != NULL && !alone)
        return ERR(e, ERR_USAGE,
                   "task %.20s of a job array: use --array-shard off if this task has an input and an output of its "
                   "own, or write {task} into --output, and the tasks share the input by lines",
                   array->task_id);
    return know_task(s, array, e);
}

int share_path(const struct share *s, char *out, size_t bytes, const char *path, struct err *e)
{
    size_t n = 0;
    if (share_has_place(path) && s->task < 0)
        return ERR(e, ERR_USAGE, "%.200s: {task} and %%a need a task of a Slurm job array, or --shard K/N", path);
    while (*path != '\0' && n + 1 < bytes) {
        size_t skip = 0;
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
            if (strncmp(path, places[i], strlen(places[i])) == 0)
                skip = strlen(places[i]);
        if (skip > 0)
            n += (size_t)snprintf(out + n, bytes - n, "%" PRId64, s->task);
        else
            out[n++] = *path;
        path += skip > 0 ? skip : 1;
    }
    out[n < bytes ? n : bytes - 1] = '\0';
    if (*path != '\0' || n >= bytes)
        return ERR(e, ERR_USAGE, "%.200s..: the path is longer than %zu bytes", out, bytes - 1);
    return 0;
}
