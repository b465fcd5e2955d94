/* commands/serve.h - `lockstep serve` on rank 0: the I/O thread with its socket (coordinator/server/server.h) and
 * the main thread's part (commands/front.h). */
#ifndef COMMANDS_SERVE_H
#define COMMANDS_SERVE_H

#include "commands/front.h"
#include "coordinator/server/server.h"
#include "partition/checkpoint.h"

struct serve { /* zeroed at first */
    struct front front;
    struct server server;
};

/* Are the options consistent, can files be written? Rank 0. */
int serve_check(const struct serve_options *o, struct err *e);

/* Reads tokenizer and chat template, opens the socket: from now on clients are told that the model is being loaded.
 * Rank 0. serve: the struct serve, as in all three; options: struct serve_options. */
int serve_open(void *serve, const void *options, const struct model_config *m, const struct checkpoint *c, int n_ranks,
               struct err *e);

/* The model is loaded. */
int serve_start(void *serve, const struct limits *l, struct err *e);

/* After the loop has ended: sends pending messages, ends the threads. Returns the exit status; *e tells if a replica
 * was lost meanwhile. */
int serve_close(void *serve, struct err *e);

#endif
