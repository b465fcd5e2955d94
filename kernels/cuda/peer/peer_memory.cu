/* kernels/cuda/peer/peer_memory.cu - access to the GPU memory of other ranks, which are separate processes, by CUDA
 * IPC. */
#include "kernels/cuda/device.cuh"

#include <string.h>

bool cuda_peer_share(struct queue *q, void *memory, unsigned char handle[PEER_HANDLE_BYTES])
{
    static_assert(sizeof(cudaIpcMemHandle_t) == PEER_HANDLE_BYTES, "the size of a handle that ranks exchange");
    cuda_wait(q); /* the memory is filled before any rank writes to it */
    bool done = cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle, memory) == cudaSuccess;
    if (!done)
        (void)cudaGetLastError();
    return done;
}

void *cuda_peer_connect(struct queue *q, const unsigned char bytes[PEER_HANDLE_BYTES])
{
    cudaIpcMemHandle_t handle;
    void *memory = nullptr;
    (void)q;
    memcpy(&handle, bytes, sizeof handle);
    if (cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess)
        return memory;
    (void)cudaGetLastError();
    return nullptr;
}

void cuda_peer_disconnect(struct queue *q, void *memory)
{
    if (memory != nullptr)
        CUDA_TRY(q, cudaIpcCloseMemHandle(memory));
}
