/* kernels/invariance.h - a mode of a device: no result of an operation depends on what else is in the batch, for any
 * number of tokens. Operations on the host are always so. Models on one device share the mode. */
#ifndef KERNELS_INVARIANCE_H
#define KERNELS_INVARIANCE_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef LOCKSTEP_CUDA
void cuda_make_invariant(struct queue *q);
bool cuda_is_invariant(const struct queue *q);
#endif

/* Before the first operation. */
static inline void make_batch_invariant(const struct ops *ops, struct queue *q)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory)
        cuda_make_invariant(q);
#endif
    (void)ops, (void)q;
}

/* Are an operation's results independent of the batch? */
static inline bool is_batch_invariant(const struct ops *ops, const struct queue *q)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory)
        return cuda_is_invariant(q);
#endif
    (void)ops, (void)q;
    return true;
}

#ifdef __cplusplus
}
#endif

#endif
