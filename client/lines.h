/* client/lines.h - lines that somebody types, edited and remembered by libedit where both ends are a terminal and the program was
 * built with it; else plain lines of standard input. */
#ifndef CLIENT_LINES_H
#define CLIENT_LINES_H

#include "base/err.h"

#include <stdbool.h>

/* Is somebody there, on standard input and standard output? */
bool lines_at_terminal(void);

/* The next line without its newline, which the caller frees; the prompt is shown at a terminal only. NULL: the end of
 * the input, *e, or an interrupt, which interrupt_take() returns. */
char *lines_read(const char *prompt, struct err *e);

#endif
