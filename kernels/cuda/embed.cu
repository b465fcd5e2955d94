/* kernels/cuda/embed.cu - operations that move or add whole rows: tokens in, embeddings, residual sums, rows and
 * columns of logits */
#include "kernels/cuda/device.cuh"

#define THREADS 128

__global__ void feed_kernel(int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
                            struct sampler s, int n_tokens)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    after_previous();
    if (t >= n_tokens)
        return;
    bool known = slot[t] >= 0 && slot[t] < s.n_slots;
    int32_t id = planned[t] >= 0 ? planned[t] : known ? s.last_token[(-1 - planned[t]) * s.n_slots + slot[t]] : 0;
    token[t] = id;
    if (known && pos[t] >= 0 && pos[t] < s.max_len)
        s.history[(size_t)slot[t] * s.max_len + pos[t]] = id;
}

void cuda_feed(struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
               const struct sampler *s, int n_tokens)
{
    nvtx_range range("feed");
    if (n_tokens == 0)
        return;
    launch(q, feed_kernel, dim3((unsigned)((n_tokens + THREADS - 1) / THREADS)), dim3(THREADS), 0, token, planned, slot,
           pos, *s, n_tokens);
}

/* One block per token. */
template <typename T, typename W, int N>
__global__ void embed_kernel(T *out, const int32_t *token, const W *table, int first_id, int rows, int dim)
{
    using V = vec<T, N>;
    T *row = out + (size_t)blockIdx.x * dim;
    after_previous_alone();
    int64_t id = (int64_t)token[blockIdx.x] - first_id;
    bool mine = id >= 0 && id < rows;
    for (int c = threadIdx.x * N; c < dim; c += blockDim.x * N) {
        V v;
        for (int i = 0; i < N; i++)
            v.e[i] = from_float<T>(mine ? to_float(table[(size_t)id * dim + c + i]) : 0.0f);
        *(V *)(row + c) = v;
    }
}

void cuda_embed(struct queue *q, void *out, const int32_t *token, const struct weight *table, int first_id,
                int n_tokens)
{
    nvtx_range range("embed");
    int dim = table->cols;
    if (n_tokens == 0 || dim == 0)
        return;
    with_type(q->act, [&](auto t) {
        with_type(table->type, [&](auto w) {
            using T = decltype(t);
            using W = decltype(w);
            if (vectors_fit<T>(dim, out))
                launch(q, embed_kernel<T, W, 16 / sizeof(T)>, dim3((unsigned)n_tokens), dim3(THREADS), 0, (T *)out,
                       token, (const W *)table->data, first_id, table->rows, dim);
            else
                launch(q, embed_kernel<T, W, 1>, dim3((unsigned)n_tokens), dim3(THREADS), 0, (T *)out, token,
                       (const W *)table->data, first_id, table->rows, dim);
        });
    });
}

template <typename T, typename W>
__global__ void add_position_kernel(T *x, const W *table, const int32_t *pos, int offset, int rows, int dim)
{
    T *row = x + (size_t)blockIdx.x * dim;
    int64_t at = (int64_t)pos[blockIdx.x] + offset;
    if (at < 0 || at >= rows)
        return;
    for (int c = threadIdx.x; c < dim; c += blockDim.x)
        row[c] = from_float<T>(to_float(row[c]) + to_float(table[(size_t)at * dim + c]));
}

void cuda_add_position(struct queue *q, void *x, const struct weight *table, const int32_t *pos, int offset,
                       int n_tokens)
{
    nvtx_range range("add_position");
    if (n_tokens == 0 || table->cols == 0)
        return;
    with_type(q->act, [&](auto t) {
        with_type(table->type, [&](auto w) {
            using T = decltype(t);
            using W = decltype(w);
            add_position_kernel<<<n_tokens, THREADS, 0, cuda_stream(q)>>>((T *)x, (const W *)table->data, pos, offset,
                                                                          table->rows, table->cols);
        });
    });
    CUDA_TRY(q, cudaGetLastError());
}

template <typename T, int N>
__global__ void add_kernel(T *x, const T *y, size_t n)
{
    using V = vec<T, N>;
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n;
         i += (size_t)gridDim.x * blockDim.x * N) {
        V a = *(const V *)(x + i), b = *(const V *)(y + i);
        for (int k = 0; k < N; k++)
            a.e[k] = from_float<T>(to_float(a.e[k]) + to_float(b.e[k]));
        *(V *)(x + i) = a;
    }
}

void cuda_add(struct queue *q, void *x, const void *y, size_t n)
{
    nvtx_range range("add");
    if (n == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        constexpr int N = 16 / sizeof(T);
        if (vectors_fit<T>(n, x, y))
            add_kernel<T, N><<<blocks_for(n / N, THREADS), THREADS, 0, cuda_stream(q)>>>((T *)x, (const T *)y, n);
        else
            add_kernel<T, 1><<<blocks_for(n, THREADS), THREADS, 0, cuda_stream(q)>>>((T *)x, (const T *)y, n);
    });
    CUDA_TRY(q, cudaGetLastError());
}

template <typename T, int N>
__global__ void scale_kernel(T *x, float factor, float cap, size_t n)
{
    using V = vec<T, N>;
    after_previous_alone();
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n;
         i += (size_t)gridDim.x * blockDim.x * N) {
        V a = *(const V *)(x + i);
        for (int k = 0; k < N; k++) {
            float y = to_float(a.e[k]) * factor;
            a.e[k] = from_float<T>(cap > 0 ? cap * tanhf(y / cap) : y);
        }
        *(V *)(x + i) = a;
    }
}

void cuda_scale(struct queue *q, void *x, float factor, float cap, size_t n)
{
    nvtx_range range("scale");
    if (n == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        constexpr int N = 16 / sizeof(T);
        if (vectors_fit<T>(n, x))
            launch(q, scale_kernel<T, N>, dim3((unsigned)blocks_for(n / N, THREADS)), dim3(THREADS), 0, (T *)x, factor,
                   cap, n);
        else
            launch(q, scale_kernel<T, 1>, dim3((unsigned)blocks_for(n, THREADS)), dim3(THREADS), 0, (T *)x, factor, cap,
                   n);
    });
}

template <typename T, int N>
__global__ void gather_kernel(T *out, const T *x, const int32_t *row, int dim)
{
    using V = vec<T, N>;
    after_previous();
    int from = row[blockIdx.x];
    for (int c = threadIdx.x * N; c < dim; c += blockDim.x * N) {
        V v = {};
        if (from >= 0)
            v = *(const V *)(x + (size_t)from * dim + c);
        *(V *)(out + (size_t)blockIdx.x * dim + c) = v;
    }
}

void cuda_gather_rows(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim)
{
    nvtx_range range("gather_rows");
    if (n_rows == 0 || dim == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        if (vectors_fit<T>(dim, out, x))
            launch(q, gather_kernel<T, 16 / sizeof(T)>, dim3((unsigned)n_rows), dim3(THREADS), 0, (T *)out,
                   (const T *)x, row, dim);
        else
            launch(q, gather_kernel<T, 1>, dim3((unsigned)n_rows), dim3(THREADS), 0, (T *)out, (const T *)x, row, dim);
    });
}

/* A block's token is blockIdx.x. */
template <typename T>
__global__ void gather_columns_kernel(T *out, const T *x, const int32_t *order, int dim, int cols)
{
    const T *from = x + (size_t)blockIdx.x * dim;
    after_previous();
    for (int c = blockIdx.y * blockDim.x + threadIdx.x; c < cols; c += gridDim.y * blockDim.x)
        out[(size_t)blockIdx.x * cols + c] = order[c] >= 0 ? from[order[c]] : from_float<T>(0.0f);
}

void cuda_gather_columns(struct queue *q, void *out, const void *x, const int32_t *order, int n_tokens, int dim,
                         int cols)
{
    nvtx_range range("gather_columns");
    if (n_tokens == 0 || cols == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        launch(q, gather_columns_kernel<T>, dim3((unsigned)n_tokens, (unsigned)((cols + 1023) / 1024)), dim3(256), 0,
               (T *)out, (const T *)x, order, dim, cols);
    });
}

#define JOIN_RANKS 64 /* of one launch */

struct columns {
    int begin[JOIN_RANKS + 1];
};

/* A block's rank is blockIdx.x, its row blockIdx.y and further ones. */
template <typename T>
__global__ void join_kernel(T *out, const T *in, const __grid_constant__ struct columns columns, int dim, int n_rows)
{
    int begin = columns.begin[blockIdx.x], width = columns.begin[blockIdx.x + 1] - begin;
    const T *block = in + (size_t)n_rows * begin;
    for (int i = blockIdx.y; i < n_rows; i += gridDim.y)
        for (int c = blockIdx.z * blockDim.x + threadIdx.x; c < width; c += gridDim.z * blockDim.x)
            out[(size_t)i * dim + begin + c] = block[(size_t)i * width + c];
}

void cuda_join_columns(struct queue *q, void *out, const void *in, const int *begin, int n_ranks, int n_rows)
{
    nvtx_range range("join_columns");
    int dim = begin[n_ranks];
    if (n_rows == 0 || dim == 0)
        return;
    for (int first = 0; first < n_ranks; first += JOIN_RANKS) {
        struct columns columns = {};
        int n = n_ranks - first < JOIN_RANKS ? n_ranks - first : JOIN_RANKS;
        for (int r = 0; r <= n; r++)
            columns.begin[r] = begin[first + r];
        dim3 grid((unsigned)n, (unsigned)(n_rows < 1024 ? n_rows : 1024), 16);
        with_type(q->act, [&](auto t) {
            using T = decltype(t);
            join_kernel<<<grid, 256, 0, cuda_stream(q)>>>((T *)out, (const T *)in, columns, dim, n_rows);
        });
    }
    CUDA_TRY(q, cudaGetLastError());
}
