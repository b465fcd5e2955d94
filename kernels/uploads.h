/* kernels/uploads.h - several uploads as one operation, where the device has one: it copies them with less time in
 * between. */
#ifndef KERNELS_UPLOADS_H
#define KERNELS_UPLOADS_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UPLOADS_MOST 64

/* Contiguous bytes each, more than none. */
struct uploads {
    int n;
    void *dst[UPLOADS_MOST];
    const void *src[UPLOADS_MOST];
    size_t bytes[UPLOADS_MOST];
};

#ifdef LOCKSTEP_CUDA
void cuda_upload_all(struct queue *q, const struct uploads *u);
#endif

/* As ops->upload of each, in any order: none may overlap another. Not during capture. */
static inline void upload_all(const struct ops *ops, struct queue *q, const struct uploads *u)
{
#ifdef LOCKSTEP_CUDA
    if (!ops->shares_host_memory) {
        cuda_upload_all(q, u);
        return;
    }
#endif
    for (int i = 0; i < u->n; i++)
        ops->upload(q, u->dst[i], u->bytes[i], u->src[i], u->bytes[i], u->bytes[i], 1);
}

#ifdef __cplusplus
}
#endif

#endif
