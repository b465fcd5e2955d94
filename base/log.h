/* base/log.h - lines for the person at the terminal, on standard error: warnings and notes always, information with
 * --verbose. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

/* Called once at start. `speaks`: this process prints (rank 0). */
void log_open(bool speaks, bool verbose);

/* "lockstep: warning: ..." One write a line. */
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "lockstep: ...": what everybody wants to know once. */
void log_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "lockstep: 1.234 s: ..." seconds since log_open. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
