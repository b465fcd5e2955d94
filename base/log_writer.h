/* base/log_writer.h - lines for a file or pipe, written by a thread of its own: a caller with a line never waits,
 * neither for a slow disk nor for a pipe without a reader. The queue is bounded; lines that do not fit are dropped and
 * counted, and the first loss is reported. */
#ifndef BASE_LOG_WRITER_H
#define BASE_LOG_WRITER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define LOG_WRITER_BYTES ((size_t)4 << 20) /* may wait */

struct log_writer;

/* Takes the descriptor over, also on failure. name: for messages; borrowed. */
int log_writer_open(struct log_writer **w, int fd, const char *name, struct err *e);

/* The same for a path that open_file opens ("--access-log X: cannot open: ..." on failure). If a regular file is moved
 * or removed, as log rotation does, open_file is called again for the lines that come a second later; on failure they
 * go on to the old file. */
int log_writer_open_path(struct log_writer **w, const char *path, int (*open_file)(const char *path, struct err *e),
                         const char *name, struct err *e);

/* Takes over the text (malloc'ed), a line with its newline. NULL counts as a lost line. */
void log_writer_put(struct log_writer *w, char *text, size_t bytes);

uint64_t log_writer_lost(struct log_writer *w);

/* Waiting lines have one second; a thread that the disk still blocks then is abandoned. Safe on *w == NULL,
 * which it becomes. */
void log_writer_close(struct log_writer **w);

#endif
