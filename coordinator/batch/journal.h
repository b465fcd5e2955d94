/* coordinator/batch/journal.h - the output: whole lines, appended in the order in which they come, safe on disk in
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
    bool is_file;       /* a regular file: it can be cut, locked, synced and resumed */
    int64_t bytes;      /* whole lines in it */
    int64_t unsynced;   /* of these, not known to be on disk */
    double unsynced_at; /* seconds_now() when the first of them was written; 0: before this run */
    bool sync_failed;   /* for good: what is not synced may be lost */

    /* A regular file only. */
    struct prefix *prefix; /* of its whole lines; owned */
    json_t
        *synced; /* prefix_json of what the last sync put on disk; owned, NULL: none since it was opened or replaced */
    int64_t intact; /* number of bytes that earlier runs wrote */

    /* No regular file: what nobody has taken yet, so that a reader who stalls stops nobody but himself. */
    char *pending; /* [capacity] */
    size_t capacity, n_pending;
};

/* Open or create, and lock: a second batch on the same output is refused, after waiting this many seconds for its end:
 * one that was killed may need some. */
int journal_open(struct journal *j, const char *path, double patience, struct err *e);

/* Refuse a file that does not begin as every result does: it is a foreign file. A file of zeros may be the remains of
 * a crash. */
int journal_refuse_other(const struct journal *j, const char *begin, struct err *e);

/* Are the bytes still those that an earlier run has recorded (was: journal.synced of then; NULL: not known)? Sets
 * intact. A file that has become shorter is no failure: results that are gone run again. Damage is ERR_INPUT and named
 * by bytes and lines. */
int journal_check(struct journal *j, const json_t *was, struct err *e);

#define JOURNAL_FOREIGN INT64_MAX /* trusted: nothing is known of the file, which may be another's */

struct journal_reader {
    const char *begin; /* the beginning of every result */
    /* Called for every line (its newline left out) with its offset. Returns whether it is a result. */
    bool (*on_line)(void *context, const char *line, size_t bytes, int64_t offset, struct err *e);
    void *context;
};

/* Reads what is in it. Lines behind journal.intact must be JSON, too. The first `trusted` bytes were known to be on
 * disk. Cut off is only what a crash leaves: a line that was begun, and behind `trusted` all from the first line on
 * that has a hole (zeros). Any other line that is not ours is a mistake, and *e: nothing is changed. *cut: bytes that
 * were cut off. */
int journal_recover(struct journal *j, int64_t trusted, const struct journal_reader *reader, int64_t *cut,
                    struct err *e);

/* Append a line (its newline included) as a whole, or not at all. To what is no regular file it never waits: n_pending
 * bytes may be left, for journal_flush. */
int journal_append(struct journal *j, const char *line, size_t bytes, double now, struct err *e);

/* Write what is pending, as far as that does not block: to be called when fd can be written. */
int journal_flush(struct journal *j, struct err *e);

/* Lines that were appended and are not written as a whole. */
int64_t journal_pending_lines(const struct journal *j);

/* All that was appended is on disk when this returns, and journal.synced describes it. */
int journal_sync(struct journal *j, struct err *e);

/* The file is about to be replaced: journal.synced does not describe it any more, until the next sync. */
void journal_forget(struct journal *j);

/* Put the synced file `temporary`, of which fd (taken over on success) is, in the place of `target`, where the
 * journal's own path leads. Locked before it is there: who waits for the journal finds it in use until journal_close.
 * -1: errno says why not. */
int journal_replace(struct journal *j, const char *temporary, const char *target, int fd);

/* Pending lines are lost. Safe on a struct whose fd is -1. */
void journal_close(struct journal *j);

#endif
