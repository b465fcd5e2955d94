/* coordinator/tasks/worker.h - a thread that does what may take long with one message: parsing megabytes, text to
 * tokens, and the replies that are tokens or their text. A message whose model is not known yet (task.served) comes
 * back when it is parsed. Jobs come in by a mailbox and go back the same way, in order. */
#ifndef TASKS_WORKER_H
#define TASKS_WORKER_H

#include "coordinator/tasks/task.h"

#include <pthread.h>
#include <stdatomic.h>

struct worker_setup {
    int64_t max_reply; /* bytes of a reply that is tokens or their texts */
};

struct worker {
    struct worker_setup setup;
    void *end[2]; /* of the mailbox: who gives tasks, and the thread */
    pthread_t thread;
    bool running;
    atomic_bool stopping; /* tasks come back as they are */
};

int worker_open(struct worker *w, void *zmq_context, const char *name, const struct worker_setup *setup, struct err *e);

/* Ends the thread after the task that it is at: those behind it are not worked on any more. Tasks in the mailbox are
 * lost with its memory. */
void worker_close(struct worker *w);

#endif
