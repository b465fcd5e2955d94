/* kernels/cuda/products/experts.cu - the products of the experts that the router chose. The host never learns which:
 * grids fit any choice, or the device, so a captured step serves every choice. Products go through experts_many.cuh
 * where the device supports it, elsewhere few tokens through experts_stream.cuh; the kernels here take the rest. */
#include "kernels/alone.h"
#include "kernels/cuda/products/experts_many_host.cuh"
#include "kernels/cuda/products/experts_stream_host.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/row_dots.cuh"
#include "kernels/invariance.h"

#include <stdlib.h>

#define WARPS 8

/* cuda_state.experts */
struct experts_state {
    bool streams;                             /* the device has room for experts_stream.cuh */
    PFN_cuTensorMapEncodeTiled_v12000 encode; /* NULL: the device does not support experts_many.cuh */
    bool alone;                               /* see kernels/alone.h */
};

static struct experts_state *experts_of(const struct queue *q)
{
    return (struct experts_state *)cuda_state(q)->experts;
}

/* ---- any product: the results of all pairs, which other kernels activate or sum up ---- */

template <typename T, typename W>
struct expert_args {
    T *out;
    const T *x;
    const W *w;       /* [n_held, rows, cols] */
    const void *bias; /* [n_held, rows]; NULL: none */
    enum dtype bias_type;
    const int32_t *begin, *pair; /* begin points to the first held expert's */
    int rows, cols;
    int pairs_a_row; /* consecutive pairs that share a row of x */
};

/* The weights of the block's expert. */
template <typename T, typename W>
__device__ static inline float bias_of(const expert_args<T, W> &a, int row)
{
    return weight_at(a.bias, a.bias_type, (int)blockIdx.y * a.rows + row, 0.0f);
}

/* One warp per row of one expert, for all of its tokens. grid: rows / WARPS, experts */
template <typename T, typename W, int N>
__global__ void experts_rows(expert_args<T, W> a)
{
    after_previous();
    int row = (int)(blockIdx.x * WARPS + threadIdx.x / 32), end = a.begin[blockIdx.y + 1];
    if (row >= a.rows)
        return;
    const W *w = a.w + ((size_t)blockIdx.y * a.rows + row) * a.cols;
    for (int p0 = a.begin[blockIdx.y]; p0 < end; p0 += DOT_TOKENS) {
        const T *x[DOT_TOKENS];
        float sum[DOT_TOKENS];
        for (int t = 0; t < DOT_TOKENS; t++)
            x[t] = a.x + (size_t)(a.pair[min(p0 + t, end - 1)] / a.pairs_a_row) * a.cols;
        row_dots<T, W, N>(sum, x, w, a.cols);
        for (int t = 0; t < DOT_TOKENS; t++)
            if (threadIdx.x % 32 == 0 && p0 + t < end)
                a.out[(size_t)a.pair[p0 + t] * a.rows + row] = from_float<T>(sum[t] + bias_of(a, row));
    }
}

#define TILE         64 /* tokens, and rows of weights */
#define TILE_COLS    32 /* of both at a time */
#define TILE_PITCH   40 /* row pitch in shared memory, in elements: eight rows at a time have no bank conflicts */
#define TILE_THREADS 128
#define TILE_SPREAD  8 /* blocks among which an expert's tokens are divided */

template <typename T>
struct tile_stage {
    T x[TILE][TILE_PITCH], w[TILE][TILE_PITCH];
};

/* Copies columns [k0, k0 + TILE_COLS) to a stage; elements beyond an edge become zeros. */
template <typename T>
__device__ static inline void tile_fetch(tile_stage<T> &s, const expert_args<T, T> &a, const T *w, const size_t *x_row,
                                         int p0, int end, int row0, int k0)
{
    for (int i = threadIdx.x; i < TILE * (TILE_COLS / 8); i += TILE_THREADS) {
        int row = i / (TILE_COLS / 8), c = i % (TILE_COLS / 8) * 8;
        bool in = k0 + c < a.cols, x_in = in && p0 + row < end, w_in = in && row0 + row < a.rows;
        async_copy(&s.x[row][c], x_in ? a.x + x_row[row] * a.cols + k0 + c : a.x, x_in);
        async_copy(&s.w[row][c], w_in ? w + (size_t)(row0 + row) * a.cols + k0 + c : w, w_in);
    }
    async_commit();
}

/* A warp's quarter: 32 tokens times 32 rows. */
template <typename T>
__device__ static inline void tile_multiply(float (&sum)[2][4][4], const tile_stage<T> &s)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t0 = warp / 2 * 32, r0 = warp % 2 * 32;
#pragma unroll
    for (int k = 0; k < TILE_COLS; k += 16) {
        uint32_t x[2][4], w[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            tensor_load(x[i], &s.x[t0 + i * 16 + lane % 16][k + lane / 16 * 8]);
            tensor_load(w[i], &s.w[r0 + i * 16 + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                tensor_mma<T>(sum[i][j], x[i][0], x[i][1], x[i][2], x[i][3], w[j / 2][j % 2 * 2],
                              w[j / 2][j % 2 * 2 + 1]);
    }
}

template <typename T>
__device__ static inline void tile_store(const expert_args<T, T> &a, const float (&sum)[2][4][4], int p0, int end,
                                         int row0)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int t0 = p0 + warp / 2 * 32 + lane / 4, r0 = row0 + warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int p = t0 + i * 16 + c / 2 * 8, row = r0 + j * 8 + c % 2;
                if (p < end && row < a.rows)
                    a.out[(size_t)a.pair[p] * a.rows + row] = from_float<T>(sum[i][j][c] + bias_of(a, row));
            }
}

/* TILE rows of one expert, TILE of its tokens at a time. grid: rows / TILE, experts, TILE_SPREAD */
template <typename T>
__global__ void __launch_bounds__(TILE_THREADS) experts_tiles(expert_args<T, T> a)
{
    after_previous();
    __shared__ __align__(16) tile_stage<T> stage[2];
    __shared__ size_t x_row[TILE];
    int row0 = (int)blockIdx.x * TILE, begin = a.begin[blockIdx.y], end = a.begin[blockIdx.y + 1];
    const T *w = a.w + (size_t)blockIdx.y * a.rows * a.cols;
    for (int p0 = begin + (int)blockIdx.z * TILE; p0 < end; p0 += (int)gridDim.z * TILE) {
        float sum[2][4][4] = {};
        for (int i = threadIdx.x; i < TILE; i += TILE_THREADS)
            x_row[i] = (size_t)(a.pair[min(p0 + i, end - 1)] / a.pairs_a_row);
        __syncthreads();
        tile_fetch<T>(stage[0], a, w, x_row, p0, end, row0, 0);
        for (int k0 = 0, which = 0; k0 < a.cols; k0 += TILE_COLS, which ^= 1) {
            if (k0 + TILE_COLS < a.cols)
                tile_fetch<T>(stage[which ^ 1], a, w, x_row, p0, end, row0, k0 + TILE_COLS);
            else
                async_commit();
            async_wait<1>();
            __syncthreads();
            tile_multiply<T>(sum, stage[which]);
            __syncthreads();
        }
        tile_store<T>(a, sum, p0, end, row0);
    }
    async_wait<0>();
}

template <typename T>
static void tiles(struct queue *q, const expert_args<T, T> &a, int n_held)
{
    launch(q, experts_tiles<T>, dim3((unsigned)(a.rows + TILE - 1) / TILE, (unsigned)n_held, TILE_SPREAD),
           dim3(TILE_THREADS), 0, a);
}

enum x_rows { X_TOKENS, X_PAIRS }; /* x has one row per token, or per pair */

/* out[p] = x[row of p] w_e^T (+ bias[e]) for every pair p whose expert e is held. */
static void product_of_pairs(struct queue *q, void *out, const void *x, const struct weight *w,
                             const struct weight *bias, const struct routes *r, const struct routing *how,
                             enum x_rows x_rows, int n_tokens)
{
    int rows = w->rows / r->n_held, pairs_a_row = x_rows == X_TOKENS ? how->n_chosen : 1;
    if (weight_is_quantised(w)) {
        experts_of_codes(q, out, x, w, bias, r, how, pairs_a_row, n_tokens,
                         products_stream(q) && !cuda_is_invariant(q));
        return;
    }
    dim3 grid((unsigned)(rows + WARPS - 1) / WARPS, (unsigned)r->n_held);
    with_dots(q->act, w->type, w->cols, x, w->data, [&](auto t, auto v, auto n) {
        using T = decltype(t);
        using W = decltype(v);
        const expert_args<T, W> a = {(T *)out,
                                     (const T *)x,
                                     (const W *)w->data,
                                     bias ? (const void *)bias->data : NULL,
                                     bias ? bias->type : DTYPE_F32,
                                     r->begin + r->first_held,
                                     r->pair,
                                     rows,
                                     w->cols,
                                     pairs_a_row};
        if constexpr (std::is_same<T, W>::value && sizeof(T) == 2 && decltype(n)::value == 8) {
            if (n_tokens > EXPERT_MAX_TOKENS && w->cols > 0 && !cuda_is_invariant(q)) {
                tiles<T>(q, a, r->n_held);
                return;
            }
        }
        launch(q, experts_rows<T, W, decltype(n)::value>, grid, dim3(WARPS * 32), 0, a);
    });
}

#define THREADS  128
#define COMBINED 8 /* experts' results that are loaded together */

/* out[t] (+)= sum_i share[t][i] y[t n_chosen + i], in the order of i, N columns per thread; SOME: skips experts that
 * are not held. lets_begin: no collective follows. grid: columns, tokens */
template <typename T, int N, bool SOME>
__global__ void combine_kernel(T *out, const T *y, const struct routes r, int n_chosen, int n_tokens, int dim,
                               bool accumulate, bool lets_begin)
{
    using V = vec<T, N>;
    after_previous_alone();
    if (lets_begin)
        let_next_begin();
    int c = (int)(blockIdx.x * THREADS + threadIdx.x) * N;
    for (int t = (int)blockIdx.y; t < n_tokens && c < dim; t += (int)gridDim.y) {
        V *to = (V *)(out + (size_t)t * dim + c);
        const T *from = y + (size_t)t * n_chosen * dim + c;
        float sum[N] = {};
        V v = {};
        if (accumulate)
            v = *to;
        for (int i0 = 0; i0 < n_chosen; i0 += COMBINED) {
            V of[COMBINED];
            float share[COMBINED];
            bool has[COMBINED];
#pragma unroll
            for (int i = 0; i < COMBINED; i++) {
                size_t pair = (size_t)t * n_chosen + i0 + i;
                has[i] = i0 + i < n_chosen;
                if (SOME && has[i])
                    has[i] = (unsigned)(r.expert[pair] - r.first_held) < (unsigned)r.n_held;
                if (has[i]) {
                    share[i] = r.share[pair];
                    of[i] = *(const V *)(from + (size_t)(i0 + i) * dim);
                }
            }
#pragma unroll
            for (int i = 0; i < COMBINED; i++)
                for (int k = 0; k < N && has[i]; k++)
                    sum[k] = fmaf(share[i], to_float(of[i].e[k]), sum[k]);
        }
        for (int k = 0; k < N; k++)
            v.e[k] = from_float<T>(accumulate ? to_float(v.e[k]) + sum[k] : sum[k]);
        *to = v;
    }
}

static void combine(struct queue *q, void *out, const void *y, const struct routes *r, const struct routing *how,
                    int n_tokens, int dim, bool accumulate)
{
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        const int WIDE = 16 / sizeof(T);
        bool wide = vectors_fit<T>(dim, out, y);
        int columns = THREADS * (wide ? WIDE : 1);
        dim3 grid((unsigned)((dim + columns - 1) / columns), (unsigned)(n_tokens < 65535 ? n_tokens : 65535));
        auto all = wide ? combine_kernel<T, WIDE, false> : combine_kernel<T, 1, false>;
        auto some = wide ? combine_kernel<T, WIDE, true> : combine_kernel<T, 1, true>;
        launch(q, r->n_held < how->n_experts ? some : all, grid, dim3(THREADS), 0, (T *)out, (const T *)y, *r,
               how->n_chosen, n_tokens, dim, accumulate, experts_of(q)->alone);
    });
}

/* ---- the operations ---- */

extern "C" int cuda_experts_open(struct queue *q, struct err *e)
{
    struct experts_state *s = (struct experts_state *)err_calloc(e, 1, sizeof *s, "experts state");
    if (s == NULL)
        return -1;
    cuda_state(q)->experts = s;
    s->streams = prepare_expert_streams(q);
    s->encode = prepare_many_experts(q);
    return q->err.code == ERR_NONE ? 0 : -1;
}

PFN_cuTensorMapEncodeTiled_v12000 many_encoder(const struct queue *q)
{
    return experts_of(q)->encode;
}

bool is_alone(const struct queue *q)
{
    return experts_of(q)->alone;
}

extern "C" void cuda_mark_alone(struct queue *q)
{
    experts_of(q)->alone = true;
}

extern "C" void cuda_experts_close(struct queue *q)
{
    free(cuda_state(q)->experts);
    cuda_state(q)->experts = NULL;
}

/* Calls f(product) if everything but codes has one 16-bit type, in rows of multiples of 16 bytes. */
template <typename F>
static bool with_product(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                         const struct routes *r, const struct routing *how, int n_tokens, F f)
{
    if ((!weight_is_quantised(w) && w->type != q->act) || q->act == DTYPE_F32 || w->cols < 1 || w->cols % 8 != 0 ||
        ((uintptr_t)w->data | (uintptr_t)x) % 16 != 0)
        return false;
    auto make = [&](auto t) {
        expert_product<decltype(t)> a = {};
        a.out = (decltype(t) *)out;
        a.x = (const decltype(t) *)x;
        a.w = (const decltype(t) *)w->data;
        a.bias = bias ? bias->data : NULL;
        a.bias_type = bias ? bias->type : DTYPE_F32;
        a.r = *r;
        a.r.begin += r->first_held;
        a.n_held = r->n_held;
        a.n_chosen = how->n_chosen;
        a.n_experts = how->n_experts;
        a.n_tokens = n_tokens;
        a.rows = w->rows / r->n_held;
        a.cols = w->cols;
        return f(a);
    };
    return q->act == DTYPE_F16 ? make(__half()) : make(__nv_bfloat16());
}

extern "C" void cuda_experts_first(struct queue *q, void *out, const void *x, const struct weight *w,
                                   const struct weight *bias, const struct routes *r, const struct routing *how,
                                   enum activation kind, void *work, int n_tokens)
{
    nvtx_range range("experts_first");
    const struct experts_state *experts = experts_of(q);
    if (n_tokens < 1 || w->rows < 2)
        return;
    bool done = with_product(q, out, x, w, bias, r, how, n_tokens, [&](auto a) {
        a.rows /= 2;
        a.kind = kind;
        if (launch_many<typename decltype(a)::type, true>(q, experts->encode, a, w))
            return true;
        if (!experts->streams || cuda_is_invariant(q) || !takes_stream(a, w))
            return false;
        stream_first(q, a);
        return true;
    });
    if (done)
        return;
    product_of_pairs(q, work, x, w, bias, r, how, X_TOKENS, n_tokens);
    cuda_activate(q, out, work, kind, true, n_tokens * how->n_chosen, w->rows / r->n_held / 2);
}

extern "C" void cuda_experts_second(struct queue *q, void *out, const void *x, const struct weight *w,
                                    const struct weight *bias, const struct routes *r, const struct routing *how,
                                    void *work, int n_tokens, int dim, bool accumulate)
{
    nvtx_range range("experts_second");
    const struct experts_state *experts = experts_of(q);
    if (n_tokens < 1 || dim < 1)
        return;
    if (r->n_held < 1) {
        combine(q, out, work, r, how, n_tokens, dim, accumulate); /* without any results */
        return;
    }
    bool sums = true;
    bool done = with_product(q, out, x, w, bias, r, how, n_tokens, [&](auto a) {
        auto many = a;
        many.out = (typename decltype(a)::type *)work;
        sums = !launch_many<typename decltype(a)::type, false>(q, experts->encode, many, w);
        if (!sums)
            return true;
        if (!experts->streams || cuda_is_invariant(q) || !takes_stream(a, w))
            return false;
        a.accumulate = accumulate;
        stream_second(q, a);
        return true;
    });
    if (done && sums)
        return;
    if (!done)
        product_of_pairs(q, work, x, w, bias, r, how, X_PAIRS, n_tokens);
    combine(q, out, work, r, how, n_tokens, dim, accumulate);
}

/* grid: tokens */
template <typename T>
__global__ void gate_kernel(T *x, const T *in, const void *w, enum dtype type, int cols, int dim)
{
    after_previous();
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += THREADS)
        sum = fmaf(to_float(in[(size_t)blockIdx.x * cols + c]), weight_at(w, type, c, 0.0f), sum);
    float factor = 1.0f / (1.0f + expf(-block_sum(sum)));
    for (int c = threadIdx.x; c < dim; c += THREADS) {
        T *to = x + (size_t)blockIdx.x * dim + c;
        *to = from_float<T>(to_float(*to) * factor);
    }
}

extern "C" void cuda_gate(struct queue *q, void *x, const void *in, const struct weight *w, int n_tokens, int dim)
{
    nvtx_range range("gate");
    if (n_tokens < 1 || dim < 1)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        launch(q, gate_kernel<T>, dim3((unsigned)n_tokens), dim3(THREADS), 0, (T *)x, (const T *)in,
               (const void *)w->data, w->type, w->cols, dim);
    });
}
