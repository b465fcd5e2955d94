/* kernels/cuda/norm.cuh - a row's norm by a block of threads. */
#ifndef CUDA_NORM_CUH
#define CUDA_NORM_CUH

#include "kernels/cuda/device.cuh"

#define NORM_THREADS 1024 /* of a block at most */

struct norm_args {
    enum norm_kind kind;
    const void *w, *b; /* NULL: ones, zeros */
    enum dtype w_type, b_type;
    bool w_fetched, b_fetched; /* of the activations' type and aligned: fetched by vectors */
    int dim;
    float eps, offset; /* offset: added to the weights */
};

static inline struct norm_args norm_make(const struct queue *q, enum norm_kind kind, const struct weight *w,
                                         const struct weight *b, int dim, float eps)
{
    auto fetched = [&](const struct weight *v) {
        return v != nullptr && v->type == q->act && (uintptr_t)v->data % 16 == 0;
    };
    struct norm_args a = {};
    a.kind = kind;
    a.w = w != nullptr ? w->data : nullptr;
    a.w_type = w != nullptr ? w->type : DTYPE_F32;
    a.w_fetched = fetched(w);
    a.b = b != nullptr && kind == NORM_LAYER ? b->data : nullptr;
    a.b_type = b != nullptr ? b->type : DTYPE_F32;
    a.b_fetched = a.b != nullptr && fetched(b);
    a.dim = dim;
    a.eps = eps;
    a.offset = kind == NORM_RMS_OFFSET && w != nullptr ? 1.0f : 0.0f;
    return a;
}

/* Threads of a block where each takes N elements at once. */
static inline int norm_threads(int dim, int n)
{
    int threads = ((dim + n - 1) / n + 31) / 32 * 32;
    return threads < NORM_THREADS ? threads : NORM_THREADS;
}

/* Vectors of N elements that a thread keeps of a row; 0: the row is longer than all keep together. */
static inline int norm_kept(int dim, int n)
{
    return dim <= NORM_THREADS * n ? 1 : dim <= 2 * NORM_THREADS * n ? 2 : 0;
}

/* A row in the registers of a block, K vectors of N elements a thread (in shared memory, as float, they would take as
 * long as all the rest: banks collide). K 0: the row is read again. */
template <typename T, int N, int K>
struct norm_row {
    using V = vec<T, N>;
    static const int KEPT = K > 0 ? K : 1;
    const norm_args &a;
    V x[KEPT], w[KEPT], b[KEPT];

    /* Fetches the norm's weights: early, before there is anything to wait for. */
    __device__ norm_row(const norm_args &args) : a(args)
    {
        if (K > 0)
            each([&](int c, int k) {
                if (a.w_fetched)
                    w[k] = *(const V *)((const T *)a.w + c);
                if (a.b_fetched)
                    b[k] = *(const V *)((const T *)a.b + c);
            });
    }
    /* f(column, which) of the thread's vectors. */
    template <typename F>
    __device__ void each(F f)
    {
        if (K == 0)
            for (int c = threadIdx.x * N; c < a.dim; c += blockDim.x * N)
                f(c, 0);
#pragma unroll
        for (int k = 0; k < K; k++) {
            int c = (threadIdx.x + k * blockDim.x) * N;
            if (c < a.dim)
                f(c, k);
        }
    }
    __device__ float scale(int c, int k, int i) const
    {
        return a.offset + (K > 0 && a.w_fetched ? to_float(w[k].e[i]) : weight_at(a.w, a.w_type, c + i, 1));
    }
    __device__ float shift(int c, int k, int i) const
    {
        return K > 0 && a.b_fetched ? to_float(b[k].e[i]) : weight_at(a.b, a.b_type, c + i, 0);
    }
    /* result = norm of the row whose N elements from column c on are load(c), asked for once each; row: where it can be
     * read again. */
    template <typename LOAD>
    __device__ void run(T *result, const T *row, LOAD load)
    {
        float sum = 0, square = 0;
        each([&](int c, int k) {
            V v = x[k] = load(c);
            for (int i = 0; i < N; i++) {
                float f = to_float(v.e[i]);
                sum += f;
                square += f * f;
            }
        });
        auto kept = [&](int c, int k) { return K > 0 ? x[k] : *(const V *)(row + c); };
        /* Around the mean, so that a large one does not swallow the variance; and what rounding left of the mean is
         * taken off once more, so that it does not show where the variance is small. */
        float mean = 0, rest = 0;
        if (a.kind == NORM_LAYER) {
            mean = block_sum(sum) / a.dim;
            sum = square = 0;
            each([&](int c, int k) {
                V v = kept(c, k);
                for (int i = 0; i < N; i++) {
                    float f = to_float(v.e[i]) - mean;
                    sum += f;
                    square += f * f;
                }
            });
            rest = block_sum(sum) / a.dim;
        }
        float inverse = 1.0f / sqrtf(block_sum(square) / a.dim - rest * rest + a.eps);
        each([&](int c, int k) {
            V v = kept(c, k), out;
            for (int i = 0; i < N; i++) {
                float unit = (to_float(v.e[i]) - mean - rest) * inverse;
                out.e[i] = from_float<T>(a.kind == NORM_RMS ? scale(c, k, i) * rounded<T>(unit)
                                                            : unit * scale(c, k, i) + shift(c, k, i));
            }
            *(V *)(result + c) = out;
        });
    }
};

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

/* One block a row: to = the norm of x + add, which x becomes. add NULL: of x. to: the row's place. */
template <typename T, int N, int K>
__device__ static inline void normed_row(T *to, T *x, const T *add, const norm_args &a)
{
    using V = vec<T, N>;
    norm_row<T, N, K> norm(a);
    after_previous();
    T *row = x + (size_t)blockIdx.x * a.dim;
    const T *more = add != nullptr ? add + (size_t)blockIdx.x * a.dim : nullptr;
    norm.run(to, row, [&](int c) {
        V v = *(const V *)(row + c);
        if (more != nullptr) {
            v = vec_add(v, *(const V *)(more + c));
            *(V *)(row + c) = v;
        }
        return v;
    });
}

#endif
