/* coordinator/server/dispatch.h - functions that dispatch.c, feed.c and enter.c call in each other; only for these
 * files. */
#ifndef SERVER_DISPATCH_H
#define SERVER_DISPATCH_H

#include "coordinator/server/server.h"

/* dispatch.c: a task ends without a replica, with its error or with this code. */
void dispatch_finish(struct server *s, struct task *task, int code);
/* Continue with a parsed message: check its fields, or let a worker do so if it is large. */
void dispatch_go_on(struct server *s, struct task *task);
/* May this client change the server's state? If not, the task is refused. */
bool dispatch_may_manage(struct server *s, struct task *task);

/* feed.c: the task waits for its turn. */
void dispatch_wait(struct server *s, struct task *task, enum turn_kind kind);
/* A task that has been admitted, perhaps before a drain began, is one of the open requests that may finish. Once the
 * server stops no task gets here: all open ones have been answered. */
void dispatch_submit(struct server *s, struct task *task);
/* The task, whose client is there, has left the engines. */
void dispatch_take_from_replicas(struct server *s, struct task *task);

/* enter.c: with a single model it is known before the message is parsed. */
void enter_only(struct server *s, struct task *task);
/* Let a message enter its model. false: it has none, waits for it, or was refused. */
bool enter_model(struct server *s, struct task *task);
/* Releases the task's hold on the model. */
void enter_leave(struct server *s, struct task *task);
/* load, unload, pin. */
void enter_manage(struct server *s, struct task *task);

#endif
