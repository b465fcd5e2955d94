/* client/top.h - a live view of what the server is doing, from its metrics. */
#ifndef CLIENT_TOP_H
#define CLIENT_TOP_H

#include "client/options.h"

/* Every o->interval seconds until interrupted; with o->once one view of one interval. Rates and latencies are those of
 * the interval; latencies and steps of which it has none are those since the start, and say so. On a terminal each view
 * takes the place of the last. ERR_COMM: the server is gone. */
int client_top(struct connection *c, const struct client_options *o, struct err *e);

#endif
