/* base/lookup.h - finds out whether a host's name has an address. The system's resolver may wait for a name server for
 * many seconds, so it runs in a thread of its own. */
#ifndef BASE_LOOKUP_H
#define BASE_LOOKUP_H

#include "base/err.h"

#include <stdbool.h>

struct lookup;

/* Starts it. NULL: ERR_MEMORY or ERR_IO. The caller drops it. */
struct lookup *lookup_start(const char *host, struct err *e);

/* A descriptor that is readable once it has ended. */
int lookup_descriptor(const struct lookup *l);

bool lookup_ended(const struct lookup *l);

/* After the end: 0, or the reason (EAI_NONAME, ...) for gai_strerror. */
int lookup_error(const struct lookup *l);

/* After a successful end: does the host have IPv6 addresses only? */
bool lookup_needs_ipv6(const struct lookup *l);

/* The caller no longer needs it, whether it has ended or not. l may be NULL. */
void lookup_drop(struct lookup *l);

#endif
