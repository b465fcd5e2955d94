/* coordinator/tasks/mailbox.h - exchange of pointers between two threads, over a pair of in-process ZeroMQ sockets:
 * without locks, and pollable beside other sockets. The thread that received a pointer owns the object. */
#ifndef TASKS_MAILBOX_H
#define TASKS_MAILBOX_H

#include "base/err.h"

#include <stdbool.h>

/* Both ends; each then belongs to one thread. name: of the pair, once in a context. */
int mailbox_open(void *zmq_context, const char *name, void *end[2], struct err *e);

/* Safe on NULL; pending messages are lost. */
void mailbox_close(void **end);

/* Never blocks: the number of messages under way is bounded by who posts. false: the context is being closed. */
bool mailbox_post(void *end, void *message);

/* The next message, NULL when there is none. */
void *mailbox_take(void *end);

/* Wait until there is one, up to this many milliseconds (-1: forever). false: there is none yet. */
bool mailbox_wait(void *end, long milliseconds);

/* Waits for the next message; NULL: it was `last`. */
void *mailbox_next(void *end, const void *last);

#endif
