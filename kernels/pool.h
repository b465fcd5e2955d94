/* kernels/pool.h - a memory pool of the device, for models that are loaded and unloaded beside the steps of others:
 * returning memory to the device stalls all its work, unless the memory is a pool's. Every backend has one. */
#ifndef KERNELS_POOL_H
#define KERNELS_POOL_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pool_ops {
    /* From now on this queue allocates from the pool, by ops->alloc too, where the device has one; ops->free, by any
     * queue, returns memory to it. For one queue of the process: the loading thread's. Close it after all its
     * allocations are freed. */
    void (*open)(struct queue *q);
    /* As ops->alloc, but uninitialised. */
    void *(*take)(struct queue *q, size_t bytes);
    /* Returns the pool's free memory to the device, which may take long. Any thread. */
    void (*trim)(struct queue *q);
};

extern const struct pool_ops pool_ops_cpu;
#ifdef LOCKSTEP_CUDA
extern const struct pool_ops pool_ops_cuda;
#endif

/* The pool of the backend that has `ops`. */
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
