/* kernels/cuda/step/persistent_wide_kernels.h - the wide persistent kernels, one file for each form of weights, since
 * they take long to compile. */
#ifndef STEP_PERSISTENT_WIDE_KERNELS_H
#define STEP_PERSISTENT_WIDE_KERNELS_H

#include "kernels/cuda/step/persistent_host.cuh"

#define WIDE_SLOTS 5 /* of the ring */

/* The beginning of shared memory, after the part that CUDA reserves: as a constant it takes no register, and the kernel
 * spills none. (The narrow kernel was slower that way.) persistent_wide.cu checks it against the device. */
#define WIDE_SHARED_BEGIN 1024

/* full: see persistent_kernel */
struct wide_kernels {
    void (*open)(struct queue *q, bool full, int max_shared);
    void (*patience)(struct queue *q, uint32_t for_others, uint32_t for_own);
    void (*run)(struct queue *q, bool full, const struct chain_args *a);
};
extern const struct wide_kernels wide_kernels_plain, wide_kernels_e4m3;

#endif
