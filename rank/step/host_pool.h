/* rank/step/host_pool.h - pieces of host memory that a device copies from and to, kept for the next engine when one is
 * closed: taking such memory and giving it back holds up all else that goes to the device. Any thread. */
#ifndef STEP_HOST_POOL_H
#define STEP_HOST_POOL_H

#include "kernels/ops.h"
#include "plan/plan.h"

#include <pthread.h>

/* Zeroed but for the lock: it has nothing. */
struct host_pool {
    pthread_mutex_t lock;
    struct host_piece {
        void *memory; /* NULL: there is none */
        size_t bytes;
        bool used;
    } piece[PLAN_MODELS];
};

void host_pool_open(struct host_pool *p);
/* All pieces were given back. */
void host_pool_close(struct host_pool *p, const struct ops *ops, struct queue *q);

/* Zeroed memory of at least so many bytes, for at most PLAN_MODELS at once: the smallest piece that is large enough;
 * if there is none, a new one in the place of one that nobody uses. NULL (and queue.err) if there is no memory. */
void *host_pool_take(struct host_pool *p, size_t bytes, const struct ops *ops, struct queue *q);
/* The device is done with it. memory: of host_pool_take, or NULL. */
void host_pool_give(struct host_pool *p, const void *memory);

#endif
