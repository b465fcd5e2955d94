/* coordinator/replicas/report_code.h - reports (coordinator/tasks/steps.h) as bytes, on their way from the leader of a
 * replica to rank 0: deltas of streams, finished tasks with their results, numbers. A task's results go into rank 0's
 * own struct task, so the thread that answers does not see where it ran. */
#ifndef REPLICAS_REPORT_CODE_H
#define REPLICAS_REPORT_CODE_H

#include "coordinator/replicas/wire.h"
#include "coordinator/tasks/steps.h"

/* now: the clock that times in the tasks are read on. */
void report_encode(struct wire_out *w, const struct report *r, double now);

struct report_rules { /* limits for reports */
    int vocab, n_ranks;
    /* The replica's task with this number, or NULL; take: it is returned, and not found afterwards. */
    struct task *(*find)(void *context, uint64_t number, bool take);
    void *context;
};

/* Decode a message of LINK_REPORT; its tasks and deltas point to tasks that `find` gave. NULL and *e if it does not
 * fit. */
struct report *report_decode(const void *data, size_t bytes, const struct report_rules *rules, double now,
                             struct err *e);

#endif
