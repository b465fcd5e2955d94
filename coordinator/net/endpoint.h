/* coordinator/net/endpoint.h - tcp://ADDRESS:PORT and ipc://PATH: read, checked, bound. */
#ifndef NET_ENDPOINT_H
#define NET_ENDPOINT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Is this an endpoint to bind? ERR_USAGE names what is wrong: the transport, the address, the port, the path's length. */
int endpoint_check(const char *endpoint, struct err *e);

bool endpoint_is_ipc(const char *endpoint);
/* Only this host's users reach it: a loopback address. */
bool endpoint_is_loopback(const char *endpoint);

/* Listen there, without blocking; a Unix socket has mode 0600 from its first moment, and takes the place of one on which nobody
 * listens. bound: as it is, with the port that was chosen. Returns the descriptor, or -1 and *e. */
int endpoint_listen(const char *endpoint, int backlog, char *bound, size_t bytes, struct err *e);

#endif
