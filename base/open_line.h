/* base/open_line.h - text that streams to a terminal: a signal that ends the process ends the line first, so that the
 * shell's prompt begins on a new line. */
#ifndef BASE_OPEN_LINE_H
#define BASE_OPEN_LINE_H

#include <stddef.h>

/* From now on SIGINT and SIGTERM (unless they are ignored) end a line that is open on this descriptor, then the process
 * as before. Once a process. */
void open_line_guard(int fd);

/* Notes that this text was written there, so that it is known whether the line is open. Cheap. */
void open_line_note(const char *text, size_t bytes);

#endif
