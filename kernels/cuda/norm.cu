/* kernels/cuda/norm.cu - LayerNorm and RMSNorm, with the residual sum that precedes them, in one pass over memory. */
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/tensor.cuh"

/* One block a row. The next kernel, a product, begins at once: its weights are under way while these wait and run. */
template <typename T, int N, int K>
__global__ void __launch_bounds__(NORM_THREADS) norm_kernel(T *out, T *x, const T *add, norm_args a)
{
    let_next_begin();
    normed_row<T, N, K, false>(out + (size_t)blockIdx.x * a.dim, x, add, a);
}

template <typename T, int N>
__global__ void __launch_bounds__(NORM_PLAIN_THREADS, 3) plain_norm_kernel(T *out, T *x, const T *add, norm_args a)
{
    let_next_begin();
    normed_row<T, N, NORM_PLAIN_KEPT, true>(out + (size_t)blockIdx.x * a.dim, x, add, a);
}

template <typename T, int N>
static void launch_norm(struct queue *q, T *out, T *x, const T *add, const struct norm_args &a, int n_tokens)
{
    bool plain = norm_is_plain(a, N);
    int kept = plain ? NORM_PLAIN_KEPT : norm_kept(a.dim, N);
    launch(q,
           plain       ? plain_norm_kernel<T, N>
           : kept == 1 ? norm_kernel<T, N, 1>
           : kept == 2 ? norm_kernel<T, N, 2>
                       : norm_kernel<T, N, 0>,
           dim3((unsigned)n_tokens), dim3((unsigned)norm_threads(a.dim, N, kept)), 0, out, x, add, a);
}

void cuda_norm(struct queue *q, void *out, void *x, const void *add, enum norm_kind kind, const struct weight *w,
               const struct weight *b, int n_tokens, int dim, float eps)
{
    nvtx_range range("norm");
    if (n_tokens == 0 || dim == 0)
        return;
    const struct norm_args a = norm_make(q, kind, w, b, dim, eps);
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        if (vectors_fit<T>(dim, out, x, add))
            launch_norm<T, 16 / sizeof(T)>(q, (T *)out, (T *)x, (const T *)add, a, n_tokens);
        else
            launch_norm<T, 1>(q, (T *)out, (T *)x, (const T *)add, a, n_tokens);
    });
}
