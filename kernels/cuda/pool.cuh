/* kernels/cuda/pool.cuh - the pool of kernels/pool.h, for memory.cu. */
#ifndef CUDA_POOL_CUH
#define CUDA_POOL_CUH

#include "kernels/cuda/device.cuh"

/* cudaMalloc, or the pool if it serves this queue. The queue's device becomes the calling thread's: that may be another
 * thread than the one which opened the queue, or have had no device yet (each model is loaded by a thread of its
 * own). */
cudaError_t pool_malloc(struct queue *q, void **p, size_t bytes);
/* Returns memory to the pool; false: it is not of the pool. Errors go to the queue. */
bool pool_free(struct queue *q, void *p);

#endif
