/* client/resolve.h - resolves the host of an endpoint before ZeroMQ connects to it. ZeroMQ does the same, but does
 * not report an unknown name, and its thread blocks while a name server is silent. */
#ifndef CLIENT_RESOLVE_H
#define CLIENT_RESOLVE_H

#include "base/err.h"
#include "base/lookup.h"

#include <stdbool.h>

#define RESOLVE_SECONDS 10 /* after which a name server counts as silent; a first one that is dead costs 5 */
#define RESOLVE_AGAIN   2  /* seconds from a failure to the next attempt */

struct resolve {
    char host[256];        /* "": the endpoint has no name to resolve */
    struct lookup *lookup; /* NULL: none runs */
    double began, started; /* the first attempt; this one */
    bool known, needs_ipv6;
    bool temporary; /* the last failure may pass by itself */
    char why[400];  /* what failed last; "": nothing has */
};

/* endpoint: accepted by endpoint_check. r: zeroed; call resolve_end in any case. */
int resolve_begin(struct resolve *r, const char *endpoint, struct err *e);
void resolve_end(struct resolve *r);

/* Is the host known now? Never waits. Sets `why` after a failure, and tries again later. */
bool resolve_look(struct resolve *r);

/* Has it failed for good: the name is unknown, or name servers have been silent for too long? */
bool resolve_failed(const struct resolve *r);

/* A name server is silent: `why` says for how long. */
void resolve_late(struct resolve *r, double seconds);

#endif
