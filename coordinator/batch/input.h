/* coordinator/batch/input.h - reads the lines of several files and patterns, one after the other, in constant
 * memory. */
#ifndef BATCH_INPUT_H
#define BATCH_INPUT_H

#include "coordinator/batch/prefix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define INPUT_MAX_LINE_BYTES ((size_t)64 << 20)

struct input_file {
    char *path; /* as given or found by a pattern; "-": standard input */
    struct stat stat;
    struct prefix *prefix;        /* the hash of the part read so far; NULL: nothing was read */
    const struct json_t *earlier; /* the part that earlier runs have read, which is unchanged; NULL: unknown.
                                     Borrowed */
};

struct inputs {
    struct input_file *file; /* [n] */
    int n;
    int64_t bytes, bytes_read; /* of all files; 0 if standard input or a pipe is among them */

    /* The position of reading. */
    int at;         /* file */
    int fd;         /* its descriptor, to poll after INPUT_WAIT; -1: not opened yet */
    int64_t number; /* of the last line, from 1 */
    int64_t index;  /* of the last line over all files, empty ones counted, from 1 */
    char *buffer;   /* [capacity] */
    size_t capacity, begin, end;
    bool ended;    /* all of this file is in the buffer */
    bool skipping; /* the rest of a line that was too long */
};

struct input_line {
    const char *text; /* [bytes], until the next call; NULL: more than INPUT_MAX_LINE_BYTES */
    size_t bytes;
    int file;       /* index into inputs.file */
    int64_t number; /* in it, from 1 */
    int64_t index;  /* over all files, empty lines counted, from 0 */
    int64_t end;    /* bytes of the file up to its end, newline included */
};

/* Expand patterns (in the order of names) and check that every file can be opened. A name that exists is not a pattern.
 * Files that a batch has written (OUTPUT.manifest.json is beside them) or is writing (they are locked) are skipped in
 * patterns, and refused if named. */
int inputs_open(struct inputs *in, const char *const *pattern, int n, struct err *e);

/* The next line that is not empty. INPUT_WAIT: a pipe has none yet, poll in->fd. INPUT_FAILED: *e. */
enum input_got { INPUT_LINE, INPUT_WAIT, INPUT_END, INPUT_FAILED };
enum input_got inputs_next(struct inputs *in, struct input_line *line, struct err *e);

/* The amount read so far, which may exceed the returned lines: all files before *file, and this many bytes of it. */
int64_t inputs_read(const struct inputs *in, int *file);

/* For messages and ids: the path, or "stdin". */
const char *inputs_name(const struct inputs *in, int file);

/* Safe on a zeroed struct. */
void inputs_close(struct inputs *in);

#endif
