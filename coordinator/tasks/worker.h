/* coordinator/tasks/worker.h - a thread for slow work on single messages: parsing megabytes, tokenizing, and replies
 * that consist of tokens or their text. A message whose model is not known yet (task.served) returns once it is parsed.
 * Tasks arrive by a mailbox and return by it, in order. */
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

/* Ends the thread after its current task; later ones are not processed. Tasks in the mailbox are lost. */
void worker_close(struct worker *w);

#endif
