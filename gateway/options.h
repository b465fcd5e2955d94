/* gateway/options.h - the command line of lockstep-gateway. */
#ifndef GATEWAY_OPTIONS_H
#define GATEWAY_OPTIONS_H

#include "base/err.h"
#include "gateway/backend/pool.h"
#include "gateway/http/server.h"

#include <stdbool.h>
#include <stdint.h>

/* Strings are borrowed from argv or the environment. */
struct gateway_options {
    bool help, version, open_metrics, no_page, log_times;
    const char *backend[POOL_MAX_SOURCES], *listen[HTTP_MAX_LISTENERS];
    int n_backends, n_listen;
    const char *client_key, *api_keys, *allow_origin, *access_log;
    int64_t max_body, max_backlog, max_buffered, max_connections, max_requests;
    double head_seconds, body_seconds, idle_seconds, comment_seconds, grace_seconds;
};

/* ERR_USAGE says which option, what was found and what is expected. */
int gateway_options_parse(struct gateway_options *o, int argc, char **argv, struct err *e);

/* To standard output. */
void gateway_options_help(void);

struct opt_book;
/* The table from which the man page and the completion are generated. */
void gateway_options_book(struct opt_book *b);

#endif
