/* kernels/cuda/norm.cuh - the norm of a row by one block, for the kernels that end in one: where a row comes from is theirs. */
#ifndef KERNELS_CUDA_NORM_CUH
#define KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/device.cuh"

#define ROW_CACHE_BYTES 49152 /* shared memory that needs no special request; longer rows are read again */

struct norm_args {
    enum norm_kind kind;
    const void *w, *b; /* NULL: ones, zeros */
    enum dtype w_type, b_type;
    int dim;
    float eps;
    bool cached; /* the kernel's dynamic shared memory holds a row */
};

static inline struct norm_args norm_make(enum norm_kind kind, const struct weight *w, const struct weight *b, int dim,
                                         float eps)
{
    struct norm_args a = {};
    a.kind = kind;
    a.w = w != nullptr ? w->data : nullptr;
    a.w_type = w != nullptr ? w->type : DTYPE_F32;
    a.b = b != nullptr && kind == NORM_LAYER ? b->data : nullptr;
    a.b_type = b != nullptr ? b->type : DTYPE_F32;
    a.dim = dim;
    a.eps = eps;
    a.cached = (size_t)dim * sizeof(float) <= ROW_CACHE_BYTES - 256; /* block_sum has its share */
    return a;
}

static inline size_t norm_shared_bytes(const struct norm_args &a)
{
    return a.cached ? (size_t)a.dim * sizeof(float) : 0;
}

/* Threads of a block where each takes N elements at once. */
static inline dim3 norm_threads(int dim, int n)
{
    int threads = ((dim + n - 1) / n + 31) / 32 * 32;
    return dim3((unsigned)(threads < 1024 ? threads : 1024));
}

/* result = norm of the row whose N elements from column c on are load(c), asked for once each; row: where they can be read
 * again. The row waits in shared memory, as float, between its statistics and the result. */
template <typename T, int N, typename LOAD>
__device__ static inline void norm_row(const norm_args &a, T *result, const T *row, LOAD load)
{
    extern __shared__ float cache[];
    using V = vec<T, N>;
    float sum = 0, square = 0;
    for (int c = threadIdx.x * N; c < a.dim; c += blockDim.x * N) {
        V v = load(c);
        for (int i = 0; i < N; i++) {
            float f = to_float(v.e[i]);
            sum += f;
            square += f * f;
            if (a.cached)
                cache[c + i] = f;
        }
    }
    /* Around the mean, so that a large one does not swallow the variance; and what rounding left of the mean is taken off
     * once more, so that it does not show where the variance is small. */
    float mean = 0, rest = 0;
    if (a.kind == NORM_LAYER) {
        mean = block_sum(sum) / a.dim;
        sum = square = 0;
        for (int c = threadIdx.x * N; c < a.dim; c += blockDim.x * N)
            for (int i = 0; i < N; i++) {
                float f = (a.cached ? cache[c + i] : to_float(row[c + i])) - mean;
                sum += f;
                square += f * f;
            }
        rest = block_sum(sum) / a.dim;
    }
    float inverse = 1.0f / sqrtf(block_sum(square) / a.dim - rest * rest + a.eps);
    for (int c = threadIdx.x * N; c < a.dim; c += blockDim.x * N) {
        V v;
        for (int i = 0; i < N; i++) {
            float unit = ((a.cached ? cache[c + i] : to_float(row[c + i])) - mean - rest) * inverse;
            float scale = weight_at(a.w, a.w_type, c + i, 1);
            v.e[i] = from_float<T>(a.kind == NORM_RMS ? scale * rounded<T>(unit)
                                                      : unit * scale + weight_at(a.b, a.b_type, c + i, 0));
        }
        *(V *)(result + c) = v;
    }
}

/* x + y, as an array of T keeps it. */
template <typename T, int N>
__device__ static inline vec<T, N> vec_add(const vec<T, N> &x, const vec<T, N> &y)
{
    vec<T, N> sum;
#pragma unroll
    for (int i = 0; i < N; i++)
        sum.e[i] = from_float<T>(to_float(x.e[i]) + to_float(y.e[i]));
    return sum;
}

#endif
