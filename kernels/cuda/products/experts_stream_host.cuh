/* kernels/cuda/products/experts_stream_host.cuh - the products that experts_stream.cuh supports, and its launches. Host
 * only */
#ifndef PRODUCTS_EXPERTS_STREAM_HOST_CUH
#define PRODUCTS_EXPERTS_STREAM_HOST_CUH

#include "kernels/cuda/products/experts_stream.cuh"

/* Calls f(kernel, bytes of shared memory) for every kernel that may be launched. */
template <typename F>
static void each_expert_stream(F f)
{
    auto of_type = [&](auto t) {
        using T = decltype(t);
        f((const void *)experts_first<T, 8>, first_shared_bytes<T, 8>());
        f((const void *)experts_first<T, 16>, first_shared_bytes<T, 16>());
        f((const void *)experts_second<T, 8, 2>, second_shared_bytes<T, 8, 2>());
        f((const void *)experts_second<T, 8, 3>, second_shared_bytes<T, 8, 3>());
        f((const void *)experts_second<T, 8, 4>, second_shared_bytes<T, 8, 4>());
        f((const void *)experts_second<T, 16, 2>, second_shared_bytes<T, 16, 2>());
        f((const void *)experts_second<T, 16, 3>, second_shared_bytes<T, 16, 3>());
        f((const void *)experts_second<T, 16, 4>, second_shared_bytes<T, 16, 4>());
    };
    of_type(__half());
    of_type(__nv_bfloat16());
}

/* Returns whether the device has room for them. */
static bool prepare_expert_streams(struct queue *q)
{
    int most = 0;
    bool fit = true;
    CUDA_TRY(q, cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda_state(q)->device));
    each_expert_stream([&](const void *, size_t bytes) { fit = fit && bytes <= (size_t)most; });
    if (fit)
        each_expert_stream([&](const void *kernel, size_t bytes) {
            CUDA_TRY(q, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
        });
    return fit;
}

/* Are the weights dense, and are there so few tokens? */
template <typename T>
static bool takes_stream(const expert_product<T> &a, const struct weight *w)
{
    return !weight_is_quantised(w) && a.n_tokens <= EXPERT_MAX_TOKENS && a.n_chosen <= EXPERT_MAX_CHOSEN;
}

template <typename T, int NT>
static void launch_first(struct queue *q, const expert_product<T> &a)
{
    launch_early(q, cuda_state(q)->launches_early, experts_first<T, NT>,
                 dim3((unsigned)cuda_state(q)->n_multiprocessors), EXPERT_THREADS, first_shared_bytes<T, NT>(), a);
}

template <typename T>
static void stream_first(struct queue *q, const expert_product<T> &a)
{
    if (a.n_tokens <= 8)
        launch_first<T, 8>(q, a);
    else
        launch_first<T, 16>(q, a);
}

template <typename T, int NT, int R>
static void launch_second(struct queue *q, const expert_product<T> &a, int tile_rows)
{
    int n_tiles = (a.rows + tile_rows - 1) / tile_rows, most = cuda_state(q)->n_multiprocessors;
    launch_early(q, cuda_state(q)->launches_early, experts_second<T, NT, R>,
                 dim3((unsigned)(n_tiles < most ? n_tiles : most)), EXPERT_THREADS, second_shared_bytes<T, NT, R>(), a,
                 tile_rows);
}

/* Blocks get equal numbers of rows, in as few tiles as hold them. */
template <typename T, int NT>
static void stream_second_rows(struct queue *q, const expert_product<T> &a)
{
    int n_blocks = cuda_state(q)->n_multiprocessors, of_block = (a.rows + n_blocks - 1) / n_blocks;
    int n_tiles = (of_block + EXPERT_MAX_ROWS - 1) / EXPERT_MAX_ROWS;
    int tile_rows = (a.rows + n_blocks * n_tiles - 1) / (n_blocks * n_tiles);
    if (tile_rows <= 16)
        launch_second<T, NT, 2>(q, a, tile_rows);
    else if (tile_rows <= 24)
        launch_second<T, NT, 3>(q, a, tile_rows);
    else
        launch_second<T, NT, 4>(q, a, tile_rows);
}

template <typename T>
static void stream_second(struct queue *q, const expert_product<T> &a)
{
    if (a.n_tokens <= 8)
        stream_second_rows<T, 8>(q, a);
    else
        stream_second_rows<T, 16>(q, a);
}

#endif
