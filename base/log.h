/* base/log.h - lines for the person at the terminal, on standard error: warnings and notes always, information with
 * --verbose. In addition, every process may have a log file of its own, which gets all levels. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/err.h"

#include <stdbool.h>

/* Called once at start. `speaks`: this process prints (rank 0). */
void log_open(bool speaks, bool verbose);

/* From now on lines on standard error begin with the time: "2026-11-22T01:24:44.123Z lockstep: ...". */
void log_times(void);

/* From now on all lines are also appended to this file, of every level: "2026-11-22T01:24:44.123Z HOST rank 3 warning:
 * ...". One write per line. */
int log_file(const char *path, const char *host, int rank, struct err *e);

/* "lockstep: warning: ..." One write a line. */
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "lockstep: ...": information that every user wants once. */
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "lockstep: 1.234 s: ..." seconds since log_open. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Into the file only: the failure that ends the job, which rank/world/fatal.c prints. */
void log_fatal(const char *text);

#endif
