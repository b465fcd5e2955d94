/* coordinator/net/listener.h - listening on an endpoint that base/endpoint.h has checked. */
#ifndef NET_LISTENER_H
#define NET_LISTENER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

bool listener_is_ipc(const char *endpoint);

/* Listen there, without blocking; a Unix socket has mode 0600 from the moment it exists, and replaces one without a
 * listener. bound: the actual endpoint, with the chosen port. Returns the descriptor, or -1 and *e. */
int listener_open(const char *endpoint, int backlog, char *bound, size_t bytes, struct err *e);

#endif
