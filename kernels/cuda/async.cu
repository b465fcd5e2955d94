/* kernels/cuda/async.cu - the device's identity, pinned host memory, graphs. */
#include "kernels/cuda/device.cuh"

#include <stdio.h>
#include <string.h>

/* A slice of a card (MIG) has its own UUID, which the runtime's properties need not contain. */
static cudaUUID_t uuid_of(int device, const struct cudaDeviceProp *properties)
{
    typedef int (*get_uuid)(cudaUUID_t * uuid, int device);
    void *get = NULL;
    cudaUUID_t uuid;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t rc = cudaGetDriverEntryPointByVersion("cuDeviceGetUuid", &get, 11040, cudaEnableDefault, &found);
#else
    cudaError_t rc = cudaGetDriverEntryPoint("cuDeviceGetUuid_v2", &get, cudaEnableDefault, &found);
#endif
    if (rc == cudaSuccess && found == cudaDriverEntryPointSuccess && ((get_uuid)get)(&uuid, device) == 0)
        return uuid;
    (void)cudaGetLastError();
    return properties->uuid;
}

void cuda_identify(struct queue *q, char *id, char *model, size_t bytes)
{
    struct cudaDeviceProp properties;
    id[0] = model[0] = '\0';
    CUDA_TRY(q, cudaDeviceGetPCIBusId(id, (int)bytes, cuda_state(q)->device));
    cudaError_t rc = cudaGetDeviceProperties(&properties, cuda_state(q)->device);
    CUDA_TRY(q, rc);
    if (rc != cudaSuccess)
        return;
    snprintf(model, bytes, "%s", properties.name);
    /* Slices of one card (MIG) share its address: the id within the card tells them apart. */
    size_t n = strlen(id);
    const cudaUUID_t uuid = uuid_of(cuda_state(q)->device, &properties);
    const unsigned char *u = (const unsigned char *)uuid.bytes;
    if (n + 10 <= bytes)
        snprintf(id + n, bytes - n, "/%02x%02x%02x%02x", u[0], u[1], u[2], u[3]);
}

enum peer_link cuda_peer_link(struct queue *q, const char *id)
{
    char address[64];
    int own = cuda_state(q)->device, other = -1, reaches = 0, atomics = 0;
    snprintf(address, sizeof address, "%.*s", (int)strcspn(id, "/"), id);
    if (cudaDeviceGetByPCIBusId(&other, address) != cudaSuccess) {
        (void)cudaGetLastError(); /* not among the visible ones */
        return PEER_UNKNOWN;
    }
    if (other == own) /* another slice of the same card */
        return PEER_NONE;
    CUDA_TRY(q, cudaDeviceCanAccessPeer(&reaches, own, other));
    if (!reaches)
        return PEER_NONE;
    /* All atomic operations work over NVLink, over PCIe none or some. */
    CUDA_TRY(q, cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, own, other));
    return atomics ? PEER_NVLINK : PEER_PCIE;
}

void *cuda_host_alloc(struct queue *q, size_t bytes)
{
    void *p = NULL;
    cudaError_t rc = cudaHostAlloc(&p, bytes > 0 ? bytes : 1, cudaHostAllocDefault);
    if (rc != cudaSuccess) {
        (void)cudaGetLastError();
        ERR(&q->err, ERR_MEMORY, "cannot allocate %zu bytes of pinned host memory: %s", bytes, cudaGetErrorString(rc));
        return NULL;
    }
    memset(p, 0, bytes);
    return p;
}

void cuda_host_free(struct queue *q, void *p)
{
    if (p != NULL)
        CUDA_TRY(q, cudaFreeHost(p));
}

bool cuda_host_register(struct queue *q, void *p, size_t bytes)
{
    (void)q;
    bool done = cudaHostRegister(p, bytes, cudaHostRegisterDefault) == cudaSuccess;
    if (!done)
        (void)cudaGetLastError();
    return done;
}

void cuda_host_unregister(struct queue *q, void *p)
{
    CUDA_TRY(q, cudaHostUnregister(p));
}

/* Thread-local mode, so that calls of NCCL's own threads do not affect the recording. */
void cuda_begin_capture(struct queue *q)
{
    CUDA_TRY(q, cudaStreamBeginCapture(cuda_stream(q), cudaStreamCaptureModeThreadLocal));
    cuda_state(q)->recording = q->err.code == ERR_NONE;
}

void *cuda_end_capture(struct queue *q)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cuda_state(q)->recording = false;
    CUDA_TRY(q, cudaStreamEndCapture(cuda_stream(q), &graph));
    if (graph == NULL)
        return NULL;
    CUDA_TRY(q, cudaGraphInstantiate(&exec, graph, 0));
    CUDA_TRY(q, cudaGraphDestroy(graph));
    return exec;
}

void cuda_launch_graph(struct queue *q, void *graph)
{
    CUDA_TRY(q, cudaGraphLaunch((cudaGraphExec_t)graph, cuda_stream(q)));
}

void cuda_free_graph(struct queue *q, void *graph)
{
    if (graph != NULL)
        CUDA_TRY(q, cudaGraphExecDestroy((cudaGraphExec_t)graph));
}
