/* kernels/cuda/states.cu - see kernels/states.h. */
#include "kernels/cuda/device.cuh"
#include "kernels/states.h"

#define THREADS 128

/* A block's row is blockIdx.x. */
template <typename T, int N>
__global__ void scatter_kernel(T *out, const T *x, const int32_t *row, int dim)
{
    using V = vec<T, N>;
    after_previous_alone();
    int to = row[blockIdx.x];
    for (int c = threadIdx.x * N; c < dim && to >= 0; c += blockDim.x * N)
        *(V *)(out + (size_t)to * dim + c) = *(const V *)(x + (size_t)blockIdx.x * dim + c);
}

static void scatter_rows(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim)
{
    nvtx_range range("scatter_rows");
    if (n_rows == 0 || dim == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        if (vectors_fit<T>(dim, out, x))
            launch(q, scatter_kernel<T, 16 / sizeof(T)>, dim3((unsigned)n_rows), dim3(THREADS), 0, (T *)out,
                   (const T *)x, row, dim);
        else
            launch(q, scatter_kernel<T, 1>, dim3((unsigned)n_rows), dim3(THREADS), 0, (T *)out, (const T *)x, row, dim);
    });
}

/* A block's token is blockIdx.x. out and x begin with the columns that are copied. */
template <typename T, int N>
__global__ void copy_columns_kernel(T *out, int out_dim, const T *x, const T *add, int x_dim, int cols)
{
    using V = vec<T, N>;
    size_t from = (size_t)blockIdx.x * x_dim;
    after_previous_alone();
    for (int c = threadIdx.x * N; c < cols; c += blockDim.x * N) {
        V v = *(const V *)(x + from + c);
        if (add != nullptr) {
            V more = *(const V *)(add + from + c);
            for (int k = 0; k < N; k++)
                v.e[k] = from_float<T>(to_float(v.e[k]) + to_float(more.e[k]));
        }
        *(V *)(out + (size_t)blockIdx.x * out_dim + c) = v;
    }
}

static void copy_columns(struct queue *q, void *out, int out_dim, int first, const void *x, int x_dim, int x_first,
                         const void *add, int n_tokens, int cols)
{
    nvtx_range range("copy_columns");
    if (n_tokens == 0 || cols == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        T *to = (T *)out + first;
        const T *from = (const T *)x + x_first, *more = add != nullptr ? (const T *)add + x_first : nullptr;
        if (vectors_fit<T>((size_t)out_dim | (size_t)x_dim | (size_t)cols, to, from, more))
            launch(q, copy_columns_kernel<T, 16 / sizeof(T)>, dim3((unsigned)n_tokens), dim3(THREADS), 0, to, out_dim,
                   from, more, x_dim, cols);
        else
            launch(q, copy_columns_kernel<T, 1>, dim3((unsigned)n_tokens), dim3(THREADS), 0, to, out_dim, from, more,
                   x_dim, cols);
    });
}

__global__ void find_places_kernel(int32_t *place, const int32_t *planned, const struct batch batch, int n_places)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    after_previous_alone();
    if (t >= batch.n_tokens)
        return;
    int slot = batch.slot[t], pos = batch.pos[t], index = pos / KV_BLOCK_TOKENS, at = -1;
    if (slot >= 0 && planned != nullptr && planned[t] < 0)
        at = n_places + slot;
    else if (slot >= 0 && pos >= 0 && index < batch.blocks_per_slot)
        at = batch.block_table[(size_t)slot * batch.blocks_per_slot + index] * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS;
    place[t] = at;
}

static void find_places(struct queue *q, int32_t *place, const int32_t *planned, const struct batch *batch,
                        int n_places)
{
    nvtx_range range("find_places");
    if (batch->n_tokens == 0)
        return;
    launch(q, find_places_kernel, dim3((unsigned)((batch->n_tokens + THREADS - 1) / THREADS)), dim3(THREADS), 0, place,
           planned, *batch, n_places);
}

const struct state_ops state_ops_cuda = {scatter_rows, copy_columns, find_places};
