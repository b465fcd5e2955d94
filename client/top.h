/* client/top.h - a live view of the server's activity, from its metrics. */
#ifndef CLIENT_TOP_H
#define CLIENT_TOP_H

#include "client/top_options.h"

/* Prints a view every o->interval seconds until interrupted; with o->once, one view of one interval. Rates and
 * latencies are of the interval; latencies and steps without samples in it are since the start, and marked so. On a
 * terminal each view replaces the last. ERR_COMM: the server is gone. */
int client_top(struct connection *c, const struct top_options *o, struct err *e);

#endif
