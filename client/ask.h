/* client/ask.h - one request and its answer: generate, and the operations that take no text or give none. */
#ifndef CLIENT_ASK_H
#define CLIENT_ASK_H

#include "client/options.h"

/* Print the answer to standard output. ERR_REQUEST: the server's error; ERR_COMM: no answer. An interrupt cancels the
 * request and is no failure here: interrupt_came() tells. */
int ask(struct connection *c, const struct client_options *o, struct err *e);

/* Ask for one operation: its reply, which the caller decrefs. NULL: no answer within the time, or *e. */
json_t *ask_op(struct connection *c, const char *op, double seconds, struct err *e);

/* The whole of a file, or of standard input for "-", as a string; NULL on failure. The caller frees. */
char *ask_read_text(const char *word, size_t *bytes, struct err *e);

#endif
