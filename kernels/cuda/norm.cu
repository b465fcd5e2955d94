/* kernels/cuda/norm.cu - LayerNorm and RMSNorm, with the residual sum that precedes them, in one pass over memory. */
#include "kernels/cuda/device.cuh"

#define ROW_CACHE_BYTES 49152 /* shared memory that needs no special request; longer rows are read again */

/* One block a row. The row waits in shared memory, as float, between its statistics and the result. */
template <typename T, int N>
__global__ void norm_kernel(T *out, T *x, const T *add, enum norm_kind kind, const void *w, enum dtype w_type,
                            const void *b, enum dtype b_type, int dim, float eps, bool cached)
{
    extern __shared__ float cache[];
    after_previous();
    using V = vec<T, N>;
    T *row = x + (size_t)blockIdx.x * dim, *result = out + (size_t)blockIdx.x * dim;
    const T *more = add != nullptr ? add + (size_t)blockIdx.x * dim : nullptr;
    float sum = 0, square = 0;
    for (int c = threadIdx.x * N; c < dim; c += blockDim.x * N) {
        V v = *(const V *)(row + c);
        if (more != nullptr) {
            V y = *(const V *)(more + c);
            for (int i = 0; i < N; i++)
                v.e[i] = from_float<T>(to_float(v.e[i]) + to_float(y.e[i]));
            *(V *)(row + c) = v;
        }
        for (int i = 0; i < N; i++) {
            float f = to_float(v.e[i]);
            sum += f;
            square += f * f;
            if (cached)
                cache[c + i] = f;
        }
    }
    /* Around the mean, so that a large one does not swallow the variance; and what rounding left of the mean is taken off
     * once more, so that it does not show where the variance is small. */
    float mean = 0, rest = 0;
    if (kind == NORM_LAYER) {
        mean = block_sum(sum) / dim;
        sum = square = 0;
        for (int c = threadIdx.x * N; c < dim; c += blockDim.x * N)
            for (int i = 0; i < N; i++) {
                float f = (cached ? cache[c + i] : to_float(row[c + i])) - mean;
                sum += f;
                square += f * f;
            }
        rest = block_sum(sum) / dim;
    }
    float inverse = 1.0f / sqrtf(block_sum(square) / dim - rest * rest + eps);
    for (int c = threadIdx.x * N; c < dim; c += blockDim.x * N) {
        V v;
        for (int i = 0; i < N; i++) {
            float unit = ((cached ? cache[c + i] : to_float(row[c + i])) - mean - rest) * inverse;
            float scale = weight_at(w, w_type, c + i, 1);
            v.e[i] = from_float<T>(kind == NORM_RMS ? scale * rounded<T>(unit)
                                                    : unit * scale + weight_at(b, b_type, c + i, 0));
        }
        *(V *)(result + c) = v;
    }
}

template <typename T, int N>
static void launch_norm(struct queue *q, void *out, void *x, const void *add, enum norm_kind kind,
                        const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps)
{
    int threads = ((dim + N - 1) / N + 31) / 32 * 32;
    threads = threads < 1024 ? threads : 1024;
    size_t bytes = (size_t)dim * sizeof(float);
    bool cached = bytes <= ROW_CACHE_BYTES - 256; /* block_sum has its share */
    launch(q, norm_kernel<T, N>, dim3((unsigned)n_tokens), dim3((unsigned)threads), cached ? bytes : 0, (T *)out,
           (T *)x, (const T *)add, kind, w != nullptr ? w->data : nullptr, w != nullptr ? w->type : DTYPE_F32,
           b != nullptr && kind == NORM_LAYER ? b->data : nullptr, b != nullptr ? b->type : DTYPE_F32, dim, eps,
           cached);
}

void cuda_norm(struct queue *q, void *out, void *x, const void *add, enum norm_kind kind, const struct weight *w,
               const struct weight *b, int n_tokens, int dim, float eps)
{
    nvtx_range range("norm");
    if (n_tokens == 0 || dim == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        if (vectors_fit<T>(dim, out, x, add))
            launch_norm<T, 16 / sizeof(T)>(q, out, x, add, kind, w, b, n_tokens, dim, eps);
        else
            launch_norm<T, 1>(q, out, x, add, kind, w, b, n_tokens, dim, eps);
    });
}
