/* rank/step/host_pool.h - pieces of host memory that a device copies from and to, kept for the next engine when one is
 * closed, since allocating and freeing such memory stalls all other work of the device. Any thread. */
#ifndef STEP_HOST_POOL_H
#define STEP_HOST_POOL_H

#include "kernels/ops.h"
#include "plan/plan.h"

#include <pthread.h>

/* Zeroed except for the lock: empty. */
struct host_pool {
    pthread_mutex_t lock;
    struct host_piece {
        void *memory; /* NULL: there is none */
        size_t bytes;
        bool used;
    } piece[PLAN_MODELS];
};

void host_pool_open(struct host_pool *p);
/* All pieces must have been returned. */
void host_pool_close(struct host_pool *p, const struct ops *ops, struct queue *q);

/* Zeroed memory of at least this many bytes, for at most PLAN_MODELS at once: the smallest piece that is large enough;
 * otherwise a new one that replaces an unused one. NULL (and queue.err) without memory. */
void *host_pool_take(struct host_pool *p, size_t bytes, const struct ops *ops, struct queue *q);
/* Return memory that the device no longer uses. memory: from host_pool_take, or NULL. */
void host_pool_give(struct host_pool *p, const void *memory);

#endif
