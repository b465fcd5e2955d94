/* client/send.h - sends raw requests from a file, and prints every message that comes back. */
#ifndef CLIENT_SEND_H
#define CLIENT_SEND_H

#include "client/send_options.h"

/* Send the JSON values of o->file ("-": standard input), at most o->max_concurrency of them unanswered at a time;
 * prints the replies as JSON lines. ERR_REQUEST: some were answered with an error; ERR_INPUT: the file is not JSON. */
int send_file(struct connection *c, const struct send_options *o, struct err *e);

#endif
