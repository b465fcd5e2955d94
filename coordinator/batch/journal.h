/* coordinator/batch/journal.h - the output: complete lines, appended in the order of completion and synced in
 * batches. */
#ifndef BATCH_JOURNAL_H
#define BATCH_JOURNAL_H

#include "coordinator/batch/prefix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct journal {
    const char *path; /* borrowed; "-": standard output, which is only written */
    int fd;
    bool is_file;       /* a regular file, which can be truncated, locked, synced and resumed */
    int64_t bytes;      /* bytes of complete lines in it */
    int64_t unsynced;   /* bytes of these that are not synced */
    double unsynced_at; /* seconds_now() when the first of them was written; 0: before this run */
    bool sync_failed;   /* for good: what is not synced may be lost */

    /* A regular file only. */
    struct prefix *prefix; /* of its whole lines; owned */
    json_t *synced;        /* prefix_json of what the last sync put on disk; owned, NULL: none since it was opened or
                       replaced */
    int64_t intact;        /* number of bytes that earlier runs wrote */

    /* Not a regular file: bytes that no reader has taken yet. A reader that stalls delays only them. */
    char *pending; /* [capacity] */
    size_t capacity, n_pending;
};

/* Open or create, and lock. If another batch holds the lock, wait this many seconds for its end (a killed one may need
 * some), then refuse. */
int journal_open(struct journal *j, const char *path, double patience, struct err *e);

/* Refuse a foreign file, which does not begin like a result. A file of zeros may be left over from a crash. */
int journal_refuse_other(const struct journal *j, const char *begin, struct err *e);

/* Are the bytes still those that an earlier run has recorded (was: journal.synced of then; NULL: not known)? Sets
 * intact. A file that has become shorter is not a failure: the missing results run again. Damage is ERR_INPUT and named
 * by bytes and lines. */
int journal_check(struct journal *j, const json_t *was, struct err *e);

#define JOURNAL_FOREIGN INT64_MAX /* trusted: nothing is known about the file, which may be foreign */

struct journal_reader {
    const char *begin; /* the beginning of every result */
    /* Called for every line (its newline left out) with its offset. Returns whether it is a result. */
    bool (*on_line)(void *context, const char *line, size_t bytes, int64_t offset, struct err *e);
    void *context;
};

/* Reads the existing results. Lines after journal.intact must also be valid JSON. The first `trusted` bytes were known
 * to be on disk. Only remains of a crash are cut off: a partial last line, and after `trusted` everything from the
 * first line with a hole (zeros) on. Any other foreign line is an error, and nothing is changed. *cut: bytes that were
 * cut off. */
int journal_recover(struct journal *j, int64_t trusted, const struct journal_reader *reader, int64_t *cut,
                    struct err *e);

/* Append a line (including its newline) completely or not at all. Never blocks on anything but a regular file:
 * n_pending bytes may be left for journal_flush. */
int journal_append(struct journal *j, const char *line, size_t bytes, double now, struct err *e);

/* Write pending bytes as far as possible without blocking; to be called when fd is writable. */
int journal_flush(struct journal *j, struct err *e);

/* The number of appended lines that are not completely written. */
int64_t journal_pending_lines(const struct journal *j);

/* Syncs all appended lines; journal.synced describes them afterwards. */
int journal_sync(struct journal *j, struct err *e);

/* To be called before the file is replaced: journal.synced is invalid until the next sync. */
void journal_forget(struct journal *j);

/* Replace `target`, to which the journal's path leads, by the synced file `temporary`, whose descriptor fd is taken
 * over on success. The new file is locked first, so that others find it in use until journal_close. -1: see errno. */
int journal_replace(struct journal *j, const char *temporary, const char *target, int fd);

/* Pending lines are lost. Safe on a struct whose fd is -1. */
void journal_close(struct journal *j);

#endif
