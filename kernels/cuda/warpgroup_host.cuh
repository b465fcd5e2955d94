/* kernels/cuda/warpgroup_host.cuh - tells whether the device can run warpgroup.cuh. Host only. */
#ifndef KERNELS_CUDA_WARPGROUP_HOST_CUH
#define KERNELS_CUDA_WARPGROUP_HOST_CUH

#include "kernels/cuda/device.cuh"

static __global__ void ask_for_warpgroups(unsigned long long *answer)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    *answer = 1;
#else
    *answer = 0;
#endif
}

/* Was this program compiled with warpgroup products for this device? Waits. */
static inline bool has_warpgroups(struct queue *q)
{
    unsigned long long answer = 0;
    ask_for_warpgroups<<<1, 1, 0, cuda_stream(q)>>>(cuda_state(q)->word_dev);
    CUDA_TRY(q,
             cudaMemcpyAsync(&answer, cuda_state(q)->word_dev, sizeof answer, cudaMemcpyDeviceToHost, cuda_stream(q)));
    CUDA_TRY(q, cudaStreamSynchronize(cuda_stream(q)));
    return q->err.code == ERR_NONE && answer == 1;
}

#endif
