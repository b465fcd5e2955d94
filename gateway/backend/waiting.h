/* gateway/backend/waiting.h - tells the person who reads the log why requests get 503, once for each time without a
 * ready backend. */
#ifndef BACKEND_WAITING_H
#define BACKEND_WAITING_H

#include "gateway/backend/pool.h"

/* Called at every tick of the pool. */
void waiting_watch(struct pool *p);

#endif
