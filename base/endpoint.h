/* base/endpoint.h - whether a text is an endpoint. libzmq itself takes a port of 99999 (for 34463), signs, blanks and
 * half addresses without a word, so nothing reaches it that has not been through here. */
#ifndef BASE_ENDPOINT_H
#define BASE_ENDPOINT_H

#include "base/err.h"

#include <stdbool.h>

/* tcp://ADDRESS:PORT or ipc://PATH. to_bind: the port may also be 0 or * (any free one) and the address * (all); else
 * it is one to connect to. Failures are ERR_USAGE and begin with `what`. */
int endpoint_check(const char *endpoint, bool to_bind, const char *what, struct err *e);

/* Whether only processes of this host can reach this endpoint by TCP. endpoint_check has accepted it. */
bool endpoint_is_loopback(const char *endpoint);

#endif
