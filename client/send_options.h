/* client/send_options.h - options of `send`. */
#ifndef CLIENT_SEND_OPTIONS_H
#define CLIENT_SEND_OPTIONS_H

#include "client/call_options.h"

#include <stdint.h>

struct send_options {
    struct call_options call;
    const char *file; /* "-": standard input. Borrowed */
    int64_t max_concurrency;
};

extern const struct opt_rows send_rows;

#endif
