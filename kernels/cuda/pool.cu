/* kernels/cuda/pool.cu - see kernels/pool.h. Freed memory waits in the pool's own stream for the loading queue, not for
 * the steps of models (measured: cudaFree of 1 GiB delays a step by the time of two, the pool not at all). */
#include "kernels/cuda/pool.cuh"
#include "kernels/pool.h"

#include <atomic>
#include <cuda.h>

static struct {
    std::atomic<cudaMemPool_t> all; /* NULL: there is none, or not yet; the rest is set before it */
    std::atomic<void *> owner;      /* impl of the queue that it serves */
    cudaStream_t stream, loading;
    cudaEvent_t loaded;
    CUresult (*ask)(void *data, CUpointer_attribute attribute, CUdeviceptr p);
} pool;

static bool serves(const struct queue *q)
{
    return pool.all.load() != nullptr && pool.owner.load() == q->impl;
}

static bool find_ask(void)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t rc = cudaGetDriverEntryPointByVersion("cuPointerGetAttribute", &found, 11030, cudaEnableDefault, &how);
#else
    cudaError_t rc = cudaGetDriverEntryPoint("cuPointerGetAttribute", &found, cudaEnableDefault, &how);
#endif
    if (rc != cudaSuccess || how != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    pool.ask = (decltype(pool.ask))found;
    return true;
}

static void make_pool(struct queue *q)
{
    cudaMemPool_t all = nullptr;
    cudaMemPoolProps how = {};
    uint64_t kept = UINT64_MAX; /* only trim returns memory, not the next synchronisation */
    how.allocType = cudaMemAllocationTypePinned;
    how.location.type = cudaMemLocationTypeDevice;
    how.location.id = cuda_state(q)->device;
    CUDA_TRY(q, cudaMemPoolCreate(&all, &how));
    CUDA_TRY(q, cudaMemPoolSetAttribute(all, cudaMemPoolAttrReleaseThreshold, &kept));
    CUDA_TRY(q, cudaStreamCreateWithFlags(&pool.stream, cudaStreamNonBlocking));
    CUDA_TRY(q, cudaEventCreateWithFlags(&pool.loaded, cudaEventDisableTiming));
    pool.loading = cuda_stream(q);
    if (q->err.code == ERR_NONE)
        pool.all = all;
}

static void open_pool(struct queue *q)
{
    int supported = 0;
    CUDA_TRY(q, cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, cuda_state(q)->device));
    if (supported && pool.all.load() == nullptr && find_ask())
        make_pool(q);
    pool.loading = cuda_stream(q);
    pool.owner = q->impl;
}

cudaError_t pool_malloc(struct queue *q, void **p, size_t bytes)
{
    cudaError_t rc = cudaSetDevice(cuda_state(q)->device);
    if (rc != cudaSuccess)
        return rc;
    return serves(q) ? cudaMallocFromPoolAsync(p, bytes, pool.all, cuda_stream(q)) : cudaMalloc(p, bytes);
}

bool pool_free(struct queue *q, void *p)
{
    CUmemoryPool from = nullptr;
    if (pool.all.load() == nullptr)
        return false;
    if (pool.ask(&from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)p) != CUDA_SUCCESS ||
        from != (CUmemoryPool)pool.all.load())
        return false;
    if (serves(q)) {
        CUDA_TRY(q, cudaFreeAsync(p, cuda_stream(q)));
        return true;
    }
    CUDA_TRY(q, cudaEventRecord(pool.loaded, pool.loading));
    CUDA_TRY(q, cudaStreamWaitEvent(pool.stream, pool.loaded, 0));
    CUDA_TRY(q, cudaFreeAsync(p, pool.stream));
    return true;
}

static void *take_unset(struct queue *q, size_t bytes)
{
    void *p = nullptr;
    cudaError_t rc = pool_malloc(q, &p, bytes > 0 ? bytes : 1);
    if (rc == cudaSuccess)
        return p;
    (void)cudaGetLastError(); /* a refusal is no failure of the device */
    ERR(&q->err, rc == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE,
        "cannot allocate %zu bytes of device memory, %zu are free: %s", bytes, cuda_free_memory(q),
        cudaGetErrorString(rc));
    return nullptr;
}

static void trim_pool(struct queue *q)
{
    if (pool.all.load() == nullptr)
        return;
    CUDA_TRY(q, cudaStreamSynchronize(pool.stream));
    CUDA_TRY(q, cudaMemPoolTrimTo(pool.all, 0));
}

const struct pool_ops pool_ops_cuda = {.open = open_pool, .take = take_unset, .trim = trim_pool};
