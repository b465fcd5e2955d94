/* client/lines.h - lines of user input, with editing and history by libedit if standard input and output are a terminal
 * and the program was built with it; otherwise plain lines of standard input. */
#ifndef CLIENT_LINES_H
#define CLIENT_LINES_H

#include "base/err.h"

#include <stdbool.h>

/* Whether standard input and standard output are both a terminal. */
bool lines_at_terminal(void);

/* The next line without its newline, which the caller frees; the prompt is shown at a terminal only. NULL: the end of
 * the input, *e, or an interrupt, which interrupt_take() returns. */
char *lines_read(const char *prompt, struct err *e);

#endif
