/* kernels/cuda/pool.cuh - the pool of kernels/pool.h, for memory.cu. */
#ifndef CUDA_POOL_CUH
#define CUDA_POOL_CUH

#include "kernels/cuda/device.cuh"

/* cudaMalloc, or the pool if it serves this queue. Selects the queue's device for the calling thread, which may differ
 * from the one that opened the queue or may not have selected a device yet (each model is loaded by its own thread). */
cudaError_t pool_malloc(struct queue *q, void **p, size_t bytes);
/* Returns memory to the pool; false: it does not belong to the pool. Errors go to the queue. */
bool pool_free(struct queue *q, void *p);

#endif
