/* kernels/cuda/large.cu - see kernels/large.h. */
#include "kernels/cuda/device.cuh"
#include "kernels/large.h"

static void *take_large(struct queue *q, size_t bytes)
{
    void *p = nullptr;
    CUDA_TRY(q, cudaSetDevice(cuda_state(q)->device)); /* the thread may have had none yet */
    cudaError_t rc = cudaMalloc(&p, bytes > 0 ? bytes : 1);
    if (rc == cudaSuccess)
        return p;
    (void)cudaGetLastError(); /* a refusal is no failure of the device */
    ERR(&q->err, rc == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE,
        "cannot allocate %zu bytes of device memory, %zu are free: %s", bytes, cuda_free_memory(q),
        cudaGetErrorString(rc));
    return nullptr;
}

const struct large_ops large_ops_cuda = {.take = take_large, .give = cuda_free};
