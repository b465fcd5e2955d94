/* gateway/http/listen.h - listening sockets. */
#ifndef HTTP_LISTEN_H
#define HTTP_LISTEN_H

#include "base/err.h"

#include <stddef.h>

#define HTTP_ADDRESS_BYTES 128

/* "HOST:PORT", "[::1]:PORT", ":PORT" (all addresses), or "unix:PATH", where a stale socket is replaced. Port 0: any
 * free one. Returns the descriptor, nonblocking; shown: the actual address. -1: *e says why. */
int http_listen(const char *where, char shown[HTTP_ADDRESS_BYTES], struct err *e);

/* The path of a Unix socket; NULL: it is not one. */
const char *http_listen_path(const char *where);

#endif
