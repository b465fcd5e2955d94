/* client/top_options.h - options of `top`. */
#ifndef CLIENT_TOP_OPTIONS_H
#define CLIENT_TOP_OPTIONS_H

#include "client/call_options.h"

#include <stdbool.h>

struct top_options {
    struct call_options call;
    double interval; /* seconds */
    bool once;
};

extern const struct opt_rows top_rows;

#endif
