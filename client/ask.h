/* client/ask.h - one request and its answer: generate, and the operations without text in or out. */
#ifndef CLIENT_ASK_H
#define CLIENT_ASK_H

#include "client/ask_options.h"

#include <stdio.h>

/* Print the answer to standard output. ERR_REQUEST: the server's error; ERR_COMM: no answer. An interrupt cancels the
 * request and is not a failure here: see interrupt_came(). */
int ask(struct connection *c, const struct ask_options *o, struct err *e);

/* Stream the answer to a chat to standard output, and its text to copy as well. turns: [{"role", "content"}, ...]; the
 * rest of the request comes from the options. Errors as for ask. */
int ask_chat(struct connection *c, const struct ask_options *o, json_t *turns, FILE *copy, struct err *e);

/* {"role": ..., "content": ...} at the end of the turns. ERR_INPUT: it is not UTF-8. */
int ask_add_turn(json_t *turns, const char *role, const char *content, size_t bytes, struct err *e);

/* Ask for one operation: its reply, which the caller decrefs. NULL: no answer within the time, or *e. */
json_t *ask_op(struct connection *c, const char *op, double seconds, struct err *e);

/* The whole of a file, or of standard input for "-", as a string; NULL on failure. The caller frees. */
char *ask_read_text(const char *word, size_t *bytes, struct err *e);

#endif
