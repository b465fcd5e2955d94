/* kernels/cuda/norm.cuh - the norm of a row by one thread block. */
#ifndef CUDA_NORM_CUH
#define CUDA_NORM_CUH

#include "kernels/cuda/vectors.cuh"

#define NORM_THREADS 1024 /* maximum of a block */
#define NORM_PARTS   32   /* of a sum, of 32 neighbouring vectors each, in a row with one vector per thread */

#define NORM_PLAIN_KEPT    2 /* vectors that a thread keeps where norm_is_plain */
#define NORM_PLAIN_THREADS (NORM_THREADS / NORM_PLAIN_KEPT)

struct norm_args {
    enum norm_kind kind;
    const void *w, *b; /* NULL: ones, zeros */
    enum dtype w_type, b_type;
    bool w_fetched, b_fetched; /* of the activations' type and aligned: loaded by vectors */
    bool plain;                /* weights are loaded by vectors, and there is no mean and no bias or offset */
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
    a.plain = kind != NORM_LAYER && a.w_fetched && a.b == nullptr;
    a.dim = dim;
    a.eps = eps;
    a.offset = kind == NORM_RMS_OFFSET && w != nullptr ? 1.0f : 0.0f;
    return a;
}

/* Threads of a block if each keeps `kept` vectors of N elements. */
static inline int norm_threads(int dim, int n, int kept = 1)
{
    int of_thread = n * (kept > 0 ? kept : 1), threads = ((dim + of_thread - 1) / of_thread + 31) / 32 * 32;
    return threads < NORM_THREADS ? threads : NORM_THREADS;
}

/* Vectors of N elements of a row that a thread keeps; 0: the row is too long to be kept. */
static inline int norm_kept(int dim, int n)
{
    return dim <= NORM_THREADS * n ? 1 : dim <= 2 * NORM_THREADS * n ? 2 : 0;
}

/* Do such rows take normed_row with PLAIN? */
static inline bool norm_is_plain(const struct norm_args &a, int n)
{
    return a.plain && a.dim <= NORM_THREADS * n;
}

/* The sum over the block of what its threads have of K vectors, those of each 32 neighbouring ones first: the same bits
 * whatever K is. part: of this sum alone. */
template <int K>
__device__ static inline float norm_sum(float (&x)[K], float (&part)[NORM_PARTS])
{
    int lane = threadIdx.x % 32, at = threadIdx.x / 32, n_warps = blockDim.x / 32, d = 16;
    /* Lanes with several sums exchange halves of them with another lane. */
#pragma unroll
    for (int half = K / 2; half > 0; half /= 2, d /= 2) {
        bool upper = (lane & d) != 0;
#pragma unroll
        for (int i = 0; i < half; i++) {
            float other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + half], d);
            x[i] = (upper ? x[i + half] : x[i]) + other;
        }
        at += upper ? half * n_warps : 0;
    }
#pragma unroll
    for (d = 16 / K; d > 0; d /= 2)
        x[0] += __shfl_xor_sync(0xffffffffu, x[0], d);
    if (lane % (32 / K) == 0)
        part[at] = x[0];
    __syncthreads();
    return warp_sum(lane < K * n_warps ? part[lane] : 0.0f);
}

/* A row in the registers of a block, K vectors of N elements per thread (in shared memory, as float, bank conflicts
 * would take as long as all the rest). K 0: the row is read again. PLAIN: for a.plain, with fewer instructions and
 * registers. */
template <typename T, int N, int K, bool PLAIN>
struct norm_row {
    using V = packed<T, N>;
    static const int KEPT = K > 0 ? K : 1, SUMS = PLAIN ? KEPT : 1;
    const norm_args &a;
    V x[KEPT], w[KEPT], b[KEPT];

    /* Loads the norm's weights early, before the wait. */
    __device__ norm_row(const norm_args &args) : a(args)
    {
        if (K > 0)
            each([&](int c, int k) {
                if (PLAIN || a.w_fetched)
                    w[k] = *(const V *)((const T *)a.w + c);
                if (!PLAIN && a.b_fetched)
                    b[k] = *(const V *)((const T *)a.b + c);
            });
    }
    /* Calls f(column, which) for the thread's vectors. */
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
    /* The factors and summands of vector k, whose first column is c. */
    __device__ void scales(float (&to)[N], int c, int k) const
    {
        if (PLAIN || (K > 0 && a.w_fetched))
            widen_pairs(to, w[k]);
#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = a.offset + (PLAIN || (K > 0 && a.w_fetched) ? to[i] : weight_at(a.w, a.w_type, c + i, 1));
    }
    __device__ void shifts(float (&to)[N], int c, int k) const
    {
        if (!PLAIN && K > 0 && a.b_fetched)
            widen_pairs(to, b[k]);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (PLAIN || K == 0 || !a.b_fetched)
                to[i] = PLAIN ? 0.0f : weight_at(a.b, a.b_type, c + i, 0);
    }
    __device__ V kept(const T *row, int c, int k) const
    {
        return K > 0 ? as_new(x[k]) : *(const V *)(row + c);
    }
    /* x + y, rounded to T. */
    __device__ static V sum_of(const V &x, const V &y)
    {
        float sum[N], other[N];
        widen_pairs(sum, x);
        widen_pairs(other, y);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += other[i];
        return round_pairs<T>(sum);
    }
    /* x = row (+ more, which is stored to the row, too). All loads are in flight before the first store. */
    __device__ void fetch(T *row, const T *more)
    {
        V y[KEPT];
        if (K > 0)
            each([&](int c, int k) { x[k] = *(const V *)(row + c); });
        if (more == nullptr)
            return;
        if (K > 0)
            each([&](int c, int k) { y[k] = *(const V *)(more + c); });
        each([&](int c, int k) {
            x[k] = K > 0 ? sum_of(x[k], y[k]) : sum_of(*(const V *)(row + c), *(const V *)(more + c));
            *(V *)(row + c) = x[k];
        });
    }
    /* sum, square = those of the thread's elements less `mean`; PLAIN: each vector's by itself. */
    __device__ void add_up(float (&sum)[SUMS], float (&square)[SUMS], const T *row, float mean)
    {
#pragma unroll
        for (int k = 0; k < SUMS; k++)
            sum[k] = square[k] = 0;
        each([&](int c, int k) {
            float f[N];
            widen_pairs(f, kept(row, c, k));
#pragma unroll
            for (int i = 0; i < N; i++) {
                f[i] -= mean;
                sum[k % SUMS] += f[i];
                square[k % SUMS] += f[i] * f[i];
            }
        });
    }
    /* result = the norm of each element, (element - mean) * inverse. ROUNDED: before the weight. */
    template <bool ROUNDED>
    __device__ void store(T *result, const T *row, float mean, float rest, float inverse)
    {
        each([&](int c, int k) {
            float y[N], scale[N], shift[N];
            widen_pairs(y, kept(row, c, k));
            scales(scale, c, k);
            shifts(shift, c, k);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float unit = (y[i] - mean - rest) * inverse;
                y[i] = ROUNDED ? scale[i] * rounded<T>(unit) : __fadd_rn(__fmul_rn(unit, scale[i]), shift[i]);
            }
            *(V *)(result + c) = round_pairs<T>(y);
        });
    }
    /* result = norm of the row in x or, with K 0, in `row`. */
    __device__ void run(T *result, const T *row)
    {
        __shared__ float part[3][NORM_PARTS];
        float sum[SUMS], square[SUMS], mean = 0, rest = 0;
        add_up(sum, square, row, 0);
        /* Around the mean, so that a large mean does not cancel the variance; the mean's rounding error is subtracted
         * in a second pass, so that it does not show where the variance is small. */
        if (!PLAIN && a.kind == NORM_LAYER) {
            mean = norm_sum(sum, part[0]) / a.dim;
            add_up(sum, square, row, mean);
            rest = norm_sum(sum, part[1]) / a.dim;
        }
        float inverse = 1.0f / sqrtf(norm_sum(square, part[2]) / a.dim - rest * rest + a.eps);
        if (a.kind == NORM_RMS)
            store<true>(result, row, mean, rest, inverse);
        else
            store<false>(result, row, mean, rest, inverse);
    }
};

/* One block per row: to = the norm of x + add, which is stored to x. add NULL: of x. to: the row's destination. */
template <typename T, int N, int K, bool PLAIN = false>
__device__ static inline void normed_row(T *to, T *x, const T *add, const norm_args &a)
{
    norm_row<T, N, K, PLAIN> norm(a);
    after_previous();
    size_t first = (size_t)blockIdx.x * a.dim;
    norm.fetch(x + first, add != nullptr ? add + first : nullptr);
    norm.run(to, x + first);
}

#endif
