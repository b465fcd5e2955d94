/* base/endpoint.h - checks endpoints. libzmq itself silently accepts a port of 99999 (as 34463), signs, blanks and
 * incomplete addresses, so every endpoint is checked here before libzmq sees it. */
#ifndef BASE_ENDPOINT_H
#define BASE_ENDPOINT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Checks tcp://ADDRESS:PORT or ipc://PATH. to_bind: the port may also be 0 or * (any free one) and the address * (all);
 * otherwise the endpoint is one to connect to. Failures are ERR_USAGE and begin with `what`. */
int endpoint_check(const char *endpoint, bool to_bind, const char *what, struct err *e);

/* Whether an endpoint that endpoint_check has accepted contains an IPv6 address. */
bool endpoint_is_ipv6(const char *endpoint);

/* Copies the name of its host. false: it has an address or a path instead. */
bool endpoint_name(const char *endpoint, char *name, size_t bytes);

/* Whether only processes of this host can reach this endpoint by TCP. endpoint_check has accepted it. */
bool endpoint_is_loopback(const char *endpoint);

#endif
