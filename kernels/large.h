/* kernels/large.h - large pieces of a device's memory, for weights that are read beside the steps of other models: to
 * be taken and given back by another thread than that which enqueues steps. Every backend has them. */
#ifndef KERNELS_LARGE_H
#define KERNELS_LARGE_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct large_ops {
    /* As ops->alloc, but what is in it is not set. Any thread. */
    void *(*take)(struct queue *q, size_t bytes);
    /* p: of take, or NULL. No operation that uses it is under way. Any thread. */
    void (*give)(struct queue *q, void *p);
};

extern const struct large_ops large_ops_cpu;
#ifdef LOCKSTEP_CUDA
extern const struct large_ops large_ops_cuda;
#endif

/* The table of the backend that has `ops`. */
static inline const struct large_ops *large_ops_of(const struct ops *ops)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory)
        return &large_ops_cuda;
#endif
    (void)ops;
    return &large_ops_cpu;
}

#ifdef __cplusplus
}
#endif

#endif
