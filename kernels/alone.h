/* kernels/alone.h - a mode of a device: its rank is the only one, so no collective follows an operation, and the next
 * kernel may begin earlier. No result depends on it. */
#ifndef KERNELS_ALONE_H
#define KERNELS_ALONE_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef LOCKSTEP_CUDA
void cuda_mark_alone(struct queue *q);
#endif

/* Before the first operation. */
static inline void mark_alone(const struct ops *ops, struct queue *q)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory)
        cuda_mark_alone(q);
#endif
    (void)ops, (void)q;
}

#ifdef __cplusplus
}
#endif

#endif
