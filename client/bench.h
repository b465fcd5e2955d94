/* client/bench.h - runs a load of requests against a running server, and measures it. */
#ifndef CLIENT_BENCH_H
#define CLIENT_BENCH_H

#include "client/bench_options.h"

/* Runs the load and prints its figures to standard output, as a table or JSON. ERR_REQUEST: some requests failed (the
 * figures are printed); ERR_COMM: the server is gone. */
int client_bench(struct connection *c, const struct client_bench_options *o, struct err *e);

#endif
