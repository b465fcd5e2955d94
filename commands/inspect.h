/* commands/inspect.h - `lockstep inspect`: the share of every rank, from config and headers alone. */
#ifndef COMMANDS_INSPECT_H
#define COMMANDS_INSPECT_H

#include "commands/options.h"

/* Print the shard table to standard output, as text or JSON. Returns 0 or -1 with *e. */
int inspect_run(const struct inspect_options *o, struct err *e);

#endif
