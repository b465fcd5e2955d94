/* kernels/cuda/norm.cu - LayerNorm and RMSNorm, with the residual sum that precedes them, in one pass over memory. */
#include "kernels/cuda/norm.cuh"

/* One block a row. */
template <typename T, int N>
__global__ void norm_kernel(T *out, T *x, const T *add, norm_args a)
{
    after_previous();
    using V = vec<T, N>;
    T *row = x + (size_t)blockIdx.x * a.dim;
    const T *more = add != nullptr ? add + (size_t)blockIdx.x * a.dim : nullptr;
    norm_row<T, N>(a, out + (size_t)blockIdx.x * a.dim, row, [&](int c) {
        V v = *(const V *)(row + c);
        if (more != nullptr) {
            v = vec_add(v, *(const V *)(more + c));
            *(V *)(row + c) = v;
        }
        return v;
    });
}

void cuda_norm(struct queue *q, void *out, void *x, const void *add, enum norm_kind kind, const struct weight *w,
               const struct weight *b, int n_tokens, int dim, float eps)
{
    nvtx_range range("norm");
    if (n_tokens == 0 || dim == 0)
        return;
    const struct norm_args a = norm_make(kind, w, b, dim, eps);
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        const int n = 16 / sizeof(T);
        bool fits = vectors_fit<T>(dim, out, x, add);
        launch(q, fits ? norm_kernel<T, n> : norm_kernel<T, 1>, dim3((unsigned)n_tokens),
               norm_threads(dim, fits ? n : 1), norm_shared_bytes(a), (T *)out, (T *)x, (const T *)add, a);
    });
}
