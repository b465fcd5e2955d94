/* base/endpoint.h - checks endpoints. libzmq itself silently accepts a port of 99999 (as 34463), signs, blanks and
 * incomplete addresses, so every endpoint is checked here before libzmq sees it. */
#ifndef BASE_ENDPOINT_H
#define BASE_ENDPOINT_H

#include "base/err.h"

#include <stdbool.h>

/* Checks tcp://ADDRESS:PORT or ipc://PATH. to_bind: the port may also be 0 or * (any free one) and the address * (all);
 * otherwise the endpoint is one to connect to. Failures are ERR_USAGE and begin with `what`. */
int endpoint_check(const char *endpoint, bool to_bind, const char *what, struct err *e);

/* Whether only processes of this host can reach this endpoint by TCP. endpoint_check has accepted it. */
bool endpoint_is_loopback(const char *endpoint);

#endif
