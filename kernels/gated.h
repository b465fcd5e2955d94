/* kernels/gated.h - the first product of a gated MLP and its activation as one operation, where the device has one. */
#ifndef KERNELS_GATED_H
#define KERNELS_GATED_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef LOCKSTEP_CUDA
bool cuda_gated_product(struct queue *q, void *out, const void *x, const struct weight *w, enum activation kind,
                        int n_tokens);
#endif

/* out = ops->activate, gated, of ops->matmul's results with w, which are not rounded in between. w: gates, then as many
 * ups; x: [n_tokens, w->cols], out: [n_tokens, w->rows / 2]. Returns false without doing anything where the two
 * operations are as fast, and for unsupported types, forms and activations. */
static inline bool gated_product(const struct ops *ops, struct queue *q, void *out, const void *x,
                                 const struct weight *w, enum activation kind, int n_tokens)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory)
        return cuda_gated_product(q, out, x, w, kind, n_tokens);
#endif
    (void)ops, (void)q, (void)out, (void)x, (void)w, (void)kind, (void)n_tokens;
    return false;
}

#ifdef __cplusplus
}
#endif

#endif
