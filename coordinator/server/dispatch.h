/* coordinator/server/dispatch.h - for the files of coordinator/server/ that see messages through: what dispatch.c,
 * feed.c and enter.c do for each other. */
#ifndef SERVER_DISPATCH_H
#define SERVER_DISPATCH_H

#include "coordinator/server/server.h"

/* dispatch.c: a task ends without a replica, with its error or with this code. */
void dispatch_finish(struct server *s, struct task *j, int code);
/* A message that is parsed goes on: its fields are checked, or a worker does that if it is large. */
void dispatch_go_on(struct server *s, struct task *j);
/* May this client change the server's state? Else the task is refused. */
bool dispatch_may_manage(struct server *s, struct task *j);

/* feed.c: the task waits for its turn. */
void dispatch_wait(struct server *s, struct task *j, enum turn_kind kind);
/* A task that was admitted, before a drain began perhaps: it is one of the open requests that may finish. Once the
 * server stops nothing comes here: what was open has its answer. */
void dispatch_submit(struct server *s, struct task *j);
/* This many sequences of the client have left the engines. */
void dispatch_take_from_replicas(struct server *s, struct client *c, int n_sequences);

/* enter.c: where there is one model it is known before the message is parsed. */
void enter_only(struct server *s, struct task *j);
/* The way of a message into its model. false: it has none, waits for it, or was refused. */
bool enter_model(struct server *s, struct task *j);
/* Gives back whatever the task holds of the model. */
void enter_leave(struct server *s, struct task *j);
/* load, unload, pin. */
void enter_manage(struct server *s, struct task *j);

#endif
