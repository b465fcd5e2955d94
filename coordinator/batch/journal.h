/* coordinator/batch/journal.h - the output: whole lines, appended in the order in which they come, safe on disk in groups. */
#ifndef BATCH_JOURNAL_H
#define BATCH_JOURNAL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal {
    const char *path; /* borrowed; "-": standard output, which is only written */
    int fd;
    bool is_file;       /* a regular file: it can be cut, locked, synced and resumed */
    int64_t bytes;      /* whole lines in it */
    int64_t unsynced;   /* of these, not known to be on disk */
    double unsynced_at; /* seconds_now() when the first of them was written */
};

/* Open or create, and lock: a second batch on the same output is refused. */
int journal_open(struct journal *j, const char *path, struct err *e);

/* Append a line (its newline included) as a whole, or not at all. */
int journal_append(struct journal *j, const char *line, size_t bytes, double now, struct err *e);

/* Whatever was appended is on disk when this returns. */
int journal_sync(struct journal *j, struct err *e);

/* Safe on a struct whose fd is -1. */
void journal_close(struct journal *j);

#endif
