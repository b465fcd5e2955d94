/* kernels/pool.h - a device's memory for models that come and go beside the steps of others: to give memory back to the
 * device holds up all that goes to it, unless it was of a pool. Every backend has one. */
#ifndef KERNELS_POOL_H
#define KERNELS_POOL_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pool_ops {
    /* All that is taken by this queue from now on, by ops->alloc too, is of the pool, where the device has one;
     * ops->free, by any queue, returns it there. For one queue of the process: that of a thread that loads. It is
     * closed after all that it took was freed. */
    void (*open)(struct queue *q);
    /* As ops->alloc, but what is in it is not set. */
    void *(*take)(struct queue *q, size_t bytes);
    /* The device gets back what was returned to the pool, which may take long. Any thread. */
    void (*trim)(struct queue *q);
};

extern const struct pool_ops pool_ops_cpu;
#ifdef LOCKSTEP_CUDA
extern const struct pool_ops pool_ops_cuda;
#endif

/* The table of the backend that has `ops`. */
static inline const struct pool_ops *pool_ops_of(const struct ops *ops)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory)
        return &pool_ops_cuda;
#endif
    (void)ops;
    return &pool_ops_cpu;
}

#ifdef __cplusplus
}
#endif

#endif
