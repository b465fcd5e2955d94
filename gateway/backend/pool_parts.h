/* gateway/backend/pool_parts.h - internal interface between pool.c and call.c. */
#ifndef BACKEND_POOL_PARTS_H
#define BACKEND_POOL_PARTS_H

#include "gateway/backend/pool.h"

/* The call of this request_id; NULL: it is over, or not ours. */
struct call *call_find(struct pool *p, const char *id);

/* A message for it has come. */
void call_reply(struct pool *p, struct call *c, json_t *reply);

/* It has refused a request because it ends, or is not ready: it takes nothing new until its health says that it
 * does. */
void backend_refused(struct backend *b);

/* Its backend is gone. */
void call_lost(struct pool *p, struct call *c, const char *why);

#endif
