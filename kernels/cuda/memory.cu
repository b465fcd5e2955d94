/* kernels/cuda/memory.cu - a queue on a device: opening it, its memory, copies to and from it. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pool.cuh"
#include "kernels/uploads.h"

#include <stdio.h>
#include <stdlib.h>

#define TILE         32 /* edge of the square that upload_transposed transposes at a time */
#define COPY_THREADS 256

int cuda_n_devices(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError(); /* no driver: no devices */
        return 0;
    }
    return n;
}

/* The code must have been compiled for that, too, since only then it contains the waits: the device's capability is not
 * enough. */
__global__ void probe_kernel() {}

static bool launches_early(struct queue *q)
{
    struct cudaFuncAttributes attributes = {};
    CUDA_TRY(q, cudaFuncGetAttributes(&attributes, probe_kernel));
    return attributes.binaryVersion >= 90 && attributes.ptxVersion >= 90;
}

int cuda_open(struct queue *q, int device, enum dtype weights, int n_threads, struct err *e)
{
    *q = queue{};
    q->act = weights;
    q->n_threads = n_threads;
    struct cuda_state *s = (struct cuda_state *)err_calloc(e, 1, sizeof *s, "CUDA state");
    if (s == NULL)
        return -1;
    q->impl = s;
    s->device = device;
    CUDA_TRY(q, cudaSetDevice(device));
    CUDA_TRY(q, cudaDeviceGetAttribute(&s->n_multiprocessors, cudaDevAttrMultiProcessorCount, device));
    s->launches_early = launches_early(q);
    cudaStream_t stream = NULL;
    CUDA_TRY(q, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    q->stream = stream;
    CUDA_TRY(q, cudaStreamCreateWithFlags((cudaStream_t *)&s->aside, cudaStreamNonBlocking));
    void **const events[] = {&s->mark[0], &s->mark[1], &s->copied};
    for (void **event : events)
        CUDA_TRY(q, cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
    CUDA_TRY(q, cudaDeviceGetPCIBusId(s->id, sizeof s->id, device));
    s->vain = (struct cuda_vain *)cuda_host_alloc(q, sizeof *s->vain);
    s->fault = (struct cuda_fault *)cuda_host_alloc(q, sizeof *s->fault);
    s->word = (unsigned long long *)cuda_host_alloc(q, sizeof *s->word);
    s->fault_dev = cuda_alloc(q, 256);
    s->word_dev = (unsigned long long *)cuda_alloc(q, sizeof *s->word_dev);
    if (q->err.code == ERR_NONE && cuda_matmul_open(q, &q->err) == 0 && cuda_attention_open(q, &q->err) == 0)
        (void)cuda_experts_open(q, &q->err);
    if (q->err.code != ERR_NONE)
        return ERR(e, q->err.code, "GPU %d: %s", device, q->err.text);
    return 0;
}

void cuda_close(struct queue *q)
{
    struct cuda_state *s = cuda_state(q);
    if (s == NULL)
        return;
    if (q->stream != NULL)
        (void)cudaStreamSynchronize(cuda_stream(q));
    cuda_close_stamps(q);
    cuda_experts_close(q);
    cuda_attention_close(q);
    cuda_matmul_close(q);
    cuda_host_free(q, s->vain);
    cuda_host_free(q, s->fault);
    cuda_host_free(q, s->word);
    cuda_free(q, s->fault_dev);
    cuda_free(q, s->word_dev);
    cuda_free(q, s->staging);
    for (void *event : {s->mark[0], s->mark[1], s->copied})
        if (event != NULL)
            (void)cudaEventDestroy((cudaEvent_t)event);
    for (void *stream : {s->aside, (void *)q->stream})
        if (stream != NULL)
            (void)cudaStreamDestroy((cudaStream_t)stream);
    free(s);
    *q = queue{};
}

/* The calling thread may differ from the one that opened the queue, or may not have selected a device yet. */
static void become_current(struct queue *q)
{
    CUDA_TRY(q, cudaSetDevice(cuda_state(q)->device));
}

void *cuda_alloc(struct queue *q, size_t bytes)
{
    void *p = NULL;
    cudaError_t rc = pool_malloc(q, &p, bytes > 0 ? bytes : 1);
    if (rc != cudaSuccess) {
        (void)cudaGetLastError(); /* a refusal is no failure of the device */
        ERR(&q->err, rc == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE,
            "cannot allocate %zu bytes of device memory, %zu are free: %s", bytes, cuda_free_memory(q),
            cudaGetErrorString(rc));
        return NULL;
    }
    CUDA_TRY(q, cudaMemsetAsync(p, 0, bytes, cuda_stream(q)));
    return p;
}

void cuda_free(struct queue *q, void *p)
{
    if (p != NULL && !pool_free(q, p))
        CUDA_TRY(q, cudaFree(p));
}

void cuda_clear(struct queue *q, void *p, size_t bytes)
{
    if (bytes > 0)
        CUDA_TRY(q, cudaMemsetAsync(p, 0, bytes, cuda_stream(q)));
}

size_t cuda_free_memory(struct queue *q)
{
    size_t free_bytes = 0, all = 0;
    become_current(q);
    CUDA_TRY(q, cudaMemGetInfo(&free_bytes, &all));
    return free_bytes;
}

/* Copies rows of words; blockIdx.y is the row. Host memory must not be read from a cache filled by an earlier
 * launch. */
__global__ void copy_kernel(uint32_t *dst, size_t dst_pitch, const uint32_t *src, size_t src_pitch, size_t width)
{
    after_previous();
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x)
        dst[blockIdx.y * dst_pitch + i] = __ldcv(src + blockIdx.y * src_pitch + i);
}

/* A recorded step reads or writes some words of pinned host memory: a kernel copies them before a copy engine would
 * have begun. All sizes in bytes; pitches and width: multiples of 4. */
static void copy_recorded(struct queue *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                          size_t rows)
{
    const size_t word = sizeof(uint32_t);
    if (((size_t)dst | (size_t)src | dst_pitch | src_pitch | width) % word != 0) {
        ERR(&q->err, ERR_INTERNAL, "a recorded copy of %zu rows of %zu bytes: not in words of 4", rows, width);
        return;
    }
    dim3 grid(blocks_for(width / word, COPY_THREADS), (unsigned)rows);
    launch(q, copy_kernel, grid, dim3(COPY_THREADS), 0, (uint32_t *)dst, dst_pitch / word, (const uint32_t *)src,
           src_pitch / word, width / word);
}

void cuda_upload(struct queue *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                 size_t rows)
{
    if (width == 0 || rows == 0)
        return;
    if (cuda_state(q)->recording)
        copy_recorded(q, dst, dst_pitch, src, src_pitch, width, rows);
    else if (rows == 1 || (dst_pitch == width && src_pitch == width))
        CUDA_TRY(q, cudaMemcpyAsync(dst, src, width * rows, cudaMemcpyHostToDevice, cuda_stream(q)));
    else
        CUDA_TRY(
            q, cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, rows, cudaMemcpyHostToDevice, cuda_stream(q)));
}

/* Older toolkits lack the function, or give it other parameters. */
void cuda_upload_all(struct queue *q, const struct uploads *u)
{
#if CUDART_VERSION >= 13000
    if (u->n > 1) {
        struct cudaMemcpyAttributes in_order = {};
        size_t first = 0;
        in_order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        CUDA_TRY(q, cudaMemcpyBatchAsync(u->dst, u->src, u->bytes, u->n, &in_order, &first, 1, cuda_stream(q)));
        return;
    }
#endif
    for (int i = 0; i < u->n; i++)
        cuda_upload(q, u->dst[i], u->bytes[i], u->src[i], u->bytes[i], u->bytes[i], 1);
}

void cuda_upload_aside(struct queue *q, void *dst, const void *src, size_t bytes)
{
    const struct cuda_state *s = cuda_state(q);
    if (bytes == 0)
        return;
    CUDA_TRY(q, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, (cudaStream_t)s->aside));
    CUDA_TRY(q, cudaEventRecord((cudaEvent_t)s->copied, (cudaStream_t)s->aside));
    CUDA_TRY(q, cudaStreamWaitEvent(cuda_stream(q), (cudaEvent_t)s->copied, 0));
}

/* dst[c][r] = src[r][c]; src: [rows, cols] without gaps. One square per block, blocks of columns by the grid's y. */
template <typename T>
__global__ void transpose_kernel(T *dst, size_t dst_ld, const T *src, size_t rows, size_t cols)
{
    __shared__ T tile[TILE][TILE + 1];
    size_t r0 = (size_t)blockIdx.x * TILE;
    for (size_t c0 = (size_t)blockIdx.y * TILE; c0 < cols; c0 += (size_t)gridDim.y * TILE) {
        for (int i = threadIdx.y; i < TILE; i += blockDim.y)
            if (r0 + i < rows && c0 + threadIdx.x < cols)
                tile[i][threadIdx.x] = src[(r0 + i) * cols + c0 + threadIdx.x];
        __syncthreads();
        for (int i = threadIdx.y; i < TILE; i += blockDim.y)
            if (c0 + i < cols && r0 + threadIdx.x < rows)
                dst[(c0 + i) * dst_ld + r0 + threadIdx.x] = tile[threadIdx.x][i];
        __syncthreads();
    }
}

/* Copies untransposed over the bus, then transposes on the device. The staging memory is used in stream order. */
void cuda_upload_transposed(struct queue *q, void *dst, size_t dst_ld, const void *src, size_t src_ld, size_t rows,
                            size_t cols, enum dtype type)
{
    struct cuda_state *s = cuda_state(q);
    size_t size = dtype_bytes(type), bytes = rows * cols * size;
    if (bytes == 0)
        return;
    if (s->staging_bytes < bytes) {
        cuda_free(q, s->staging); /* cudaFree waits for what still uses it */
        s->staging = cuda_alloc(q, bytes);
        s->staging_bytes = s->staging != NULL ? bytes : 0;
    }
    if (s->staging == NULL)
        return;
    cuda_upload(q, s->staging, cols * size, src, src_ld * size, cols * size, rows);
    size_t bands = (cols + TILE - 1) / TILE;
    dim3 grid((unsigned)((rows + TILE - 1) / TILE), (unsigned)(bands < 65535 ? bands : 65535)), block(TILE, 8);
    if (size == 4)
        transpose_kernel<<<grid, block, 0, cuda_stream(q)>>>((uint32_t *)dst, dst_ld, (const uint32_t *)s->staging,
                                                             rows, cols);
    else
        transpose_kernel<<<grid, block, 0, cuda_stream(q)>>>((uint16_t *)dst, dst_ld, (const uint16_t *)s->staging,
                                                             rows, cols);
    CUDA_TRY(q, cudaGetLastError());
}

void cuda_download(struct queue *q, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0 && cuda_state(q)->recording)
        copy_recorded(q, dst, bytes, src, bytes, bytes, 1);
    else if (bytes > 0)
        CUDA_TRY(q, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, cuda_stream(q)));
}

/* Turns a fault found by the sampling kernel into an error, where the host first learns of it. */
static void take_fault(struct queue *q)
{
    volatile struct cuda_fault *fault = cuda_state(q)->fault;
    if (fault->n_rows == 0)
        return;
    ERR(&q->err, ERR_DEVICE, "logits of slot %d are not numbers: a weight may be NaN", fault->slot);
    fault->n_rows = 0;
}

static void say_layer(char *text, size_t bytes, unsigned long long epoch, int n_layers)
{
    int layer = (int)(epoch % (unsigned long long)(n_layers + 1));
    if (layer == 0)
        (void)snprintf(text, bytes, "the embedding");
    else
        (void)snprintf(text, bytes, "layer %d", layer - 1);
}

/* Enqueued work has failed, which the host learns when it waits. The device is unusable for the rest of this
 * process. */
static void take_failure(struct queue *q, cudaError_t rc)
{
    if (rc == cudaSuccess)
        return;
    const struct cuda_state *s = cuda_state(q);
    const struct cuda_vain vain = s->vain != nullptr ? *s->vain : cuda_vain{}; /* NULL: the queue could not be opened */
    const char *why = cudaGetErrorString(rc);
    char layer[24];
    say_layer(layer, sizeof layer, vain.for_others[0] != 0 ? vain.for_others[0] : vain.for_own[0], vain.n_layers);
    if (vain.for_sum[0] != 0)
        ERR(&q->err, ERR_COMM,
            "GPU %s: a sum over the ranks waited in vain for the data of rank %u's GPU: that rank is stopped, stuck or "
            "gone (%s)",
            s->id, (unsigned)(vain.for_sum[1] >> 32), why);
    else if (vain.for_others[0] != 0)
        ERR(&q->err, ERR_COMM,
            "GPU %s: a persistent decode step waited in vain for the data of rank %u's GPU in %s: that rank is "
            "stopped, stuck or gone (%s)",
            s->id, (unsigned)(vain.for_others[1] >> 32), layer, why);
    else if (vain.for_own[0] != 0)
        ERR(&q->err, ERR_DEVICE,
            "GPU %s: a persistent decode step waited in vain for its own results in %s (block %u; %s): try --step "
            "separate, and please report it",
            s->id, layer, (unsigned)vain.for_own[1], why);
    else
        ERR(&q->err, ERR_DEVICE, "GPU %s failed: %s", s->id, why);
}

void cuda_wait(struct queue *q)
{
    take_failure(q, cudaStreamSynchronize(cuda_stream(q)));
    take_fault(q);
}

void cuda_mark(struct queue *q, int which)
{
    CUDA_TRY(q, cudaEventRecord((cudaEvent_t)cuda_state(q)->mark[which], cuda_stream(q)));
}

bool cuda_passed(struct queue *q, int which)
{
    cudaError_t rc = cudaEventQuery((cudaEvent_t)cuda_state(q)->mark[which]);
    if (rc == cudaErrorNotReady)
        return false;
    take_failure(q, rc);
    return true;
}

void cuda_wait_mark(struct queue *q, int which)
{
    take_failure(q, cudaEventSynchronize((cudaEvent_t)cuda_state(q)->mark[which]));
    take_fault(q);
}
