/* kernels/cuda/read_stream.cu - a kernel that only reads memory, to measure the limit of decode. */
#include "kernels/cuda/device.cuh"

#define THREADS   512
#define IN_FLIGHT 8 /* loads in flight per thread */

__global__ void read_kernel(unsigned long long *result, const ulonglong2 *in, size_t n)
{
    size_t stride = (size_t)gridDim.x * THREADS, i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    unsigned long long sum = 0;
    for (; i + (IN_FLIGHT - 1) * stride < n; i += IN_FLIGHT * stride) {
        ulonglong2 v[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            v[k] = __ldcs(in + i + k * stride);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            sum ^= v[k].x ^ v[k].y;
    }
    for (; i < n; i += stride)
        sum ^= in[i].x ^ in[i].y;
    for (int d = 16; d > 0; d /= 2)
        sum ^= __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0)
        atomicXor(result, sum);
}

uint64_t cuda_read_stream(struct queue *q, const void *data, size_t bytes)
{
    struct cuda_state *s = cuda_state(q);
    CUDA_TRY(q, cudaMemsetAsync(s->word_dev, 0, sizeof *s->word_dev, cuda_stream(q)));
    read_kernel<<<s->n_multiprocessors * 4, THREADS, 0, cuda_stream(q)>>>(s->word_dev, (const ulonglong2 *)data,
                                                                          bytes / sizeof(ulonglong2));
    CUDA_TRY(q, cudaGetLastError());
    cuda_download(q, s->word, s->word_dev, sizeof *s->word);
    cuda_wait(q);
    return *s->word;
}
