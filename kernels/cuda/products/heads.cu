/* kernels/cuda/products/heads.cu - the products of latent attention: every head has a small matrix of its own. Few
 * tokens: one warp per row of a head's weights. Many: the tensor cores, where types and sizes fit. */
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/products/row_dots.cuh"
#include "kernels/cuda/products/tile_dots.cuh"
#include "kernels/invariance.h"

#define WARPS      8
#define FEW_TOKENS 16

template <typename T, typename W>
struct heads_args {
    T *out;
    const T *x;
    const W *w;                               /* [n_heads, rows, cols] */
    int out_token, out_head, x_token, x_head; /* distance from one to the next, in elements */
    int n_tokens, rows, cols;
};

/* grid: rows / WARPS, heads */
template <typename T, typename W, int N>
__global__ void __launch_bounds__(WARPS * 32) heads_rows(heads_args<T, W> a)
{
    after_previous();
    int row = (int)(blockIdx.x * WARPS + threadIdx.x / 32), h = (int)blockIdx.y;
    if (row >= a.rows)
        return;
    const W *w = a.w + ((size_t)h * a.rows + row) * a.cols;
    for (int t0 = 0; t0 < a.n_tokens; t0 += DOT_TOKENS) {
        const T *x[DOT_TOKENS];
        float sum[DOT_TOKENS];
#pragma unroll
        for (int t = 0; t < DOT_TOKENS; t++)
            x[t] = a.x + (size_t)min(t0 + t, a.n_tokens - 1) * a.x_token + (size_t)h * a.x_head;
        row_dots<T, W, N>(sum, x, w, a.cols);
#pragma unroll
        for (int t = 0; t < DOT_TOKENS; t++)
            if (threadIdx.x % 32 == 0 && t0 + t < a.n_tokens)
                a.out[(size_t)(t0 + t) * a.out_token + (size_t)h * a.out_head + row] = from_float<T>(sum[t]);
    }
}

#define BLOCK_ROWS (WARPS * TILE_ROWS)

/* A warp has TILE_TOKENS tokens and TILE_ROWS rows of a head. grid: tokens / TILE_TOKENS, rows / BLOCK_ROWS, heads */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32) heads_tiles(heads_args<T, T> a)
{
    after_previous();
    int lane = threadIdx.x % 32, g = lane / 4, t0 = (int)blockIdx.x * TILE_TOKENS, h = (int)blockIdx.z;
    int r0 = (int)blockIdx.y * BLOCK_ROWS + (int)threadIdx.x / 32 * TILE_ROWS;
    float sum[2][4] = {}; /* of 8 rows each */
    const T *x[2], *w[2];
    for (int i = 0; i < 2; i++) {
        x[i] = a.x + (size_t)min(t0 + i * 8 + g, a.n_tokens - 1) * a.x_token + (size_t)h * a.x_head;
        w[i] = a.w + ((size_t)h * a.rows + min(r0 + i * 8 + g, a.rows - 1)) * a.cols;
    }
    tile_dots<T, 4>(sum, x, w, a.cols);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int t = t0 + c / 2 * 8 + g, row = r0 + i * 8 + lane % 4 * 2 + c % 2;
            if (t < a.n_tokens && row < a.rows)
                a.out[(size_t)t * a.out_token + (size_t)h * a.out_head + row] = from_float<T>(sum[i][c]);
        }
}

/* Quantised weights, one element after the other. grid: rows / WARPS, heads */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32) heads_coded(heads_args<T, T> a, coded w)
{
    after_previous();
    int row = (int)(blockIdx.x * WARPS + threadIdx.x / 32), h = (int)blockIdx.y, lane = threadIdx.x % 32;
    if (row >= a.rows)
        return;
    for (int t0 = 0; t0 < a.n_tokens; t0 += DOT_TOKENS) {
        float sum[DOT_TOKENS] = {};
        for (int k = lane; k < a.cols; k += 32) {
            float weight = coded_element(w, h * a.rows + row, k);
#pragma unroll
            for (int t = 0; t < DOT_TOKENS; t++)
                sum[t] = fmaf(weight,
                              to_float(a.x[(size_t)min(t0 + t, a.n_tokens - 1) * a.x_token + (size_t)h * a.x_head + k]),
                              sum[t]);
        }
#pragma unroll
        for (int t = 0; t < DOT_TOKENS; t++) {
            sum[t] = warp_sum(sum[t]);
            if (lane == 0 && t0 + t < a.n_tokens)
                a.out[(size_t)(t0 + t) * a.out_token + (size_t)h * a.out_head + row] = from_float<T>(sum[t]);
        }
    }
}

template <typename T>
static void launch_coded(struct queue *q, const heads_args<T, T> &a, const struct weight *w, unsigned n_heads)
{
    launch(q, heads_coded<T>, dim3((unsigned)(a.rows + WARPS - 1) / WARPS, n_heads), dim3(WARPS * 32), 0, a,
           coded_rows(w, 0));
}

template <typename T, typename W, int N>
static void launch_heads(struct queue *q, const heads_args<T, W> &a, unsigned n_heads)
{
    if constexpr (std::is_same<T, W>::value && sizeof(T) == 2 && N == 8) {
        if (a.n_tokens > FEW_TOKENS && !cuda_is_invariant(q)) {
            dim3 grid((unsigned)(a.n_tokens + TILE_TOKENS - 1) / TILE_TOKENS,
                      (unsigned)(a.rows + BLOCK_ROWS - 1) / BLOCK_ROWS, n_heads);
            launch(q, heads_tiles<T>, grid, dim3(WARPS * 32), 0, a);
            return;
        }
    }
    launch(q, heads_rows<T, W, N>, dim3((unsigned)(a.rows + WARPS - 1) / WARPS, n_heads), dim3(WARPS * 32), 0, a);
}

extern "C" void cuda_matmul_heads(struct queue *q, struct head_rows out, struct head_rows x, const struct weight *w,
                                  int n_heads, int n_tokens)
{
    nvtx_range range("matmul_heads");
    if (n_tokens < 1 || n_heads < 1 || w->rows < 1)
        return;
    if (weight_is_quantised(w)) {
        with_type(q->act, [&](auto type) {
            using T = decltype(type);
            launch_coded<T>(q,
                            {(T *)out.data, (const T *)x.data, nullptr, out.per_token, out.per_head, x.per_token,
                             x.per_head, n_tokens, w->rows / n_heads, w->cols},
                            w, (unsigned)n_heads);
        });
        return;
    }
    int pitches = w->cols | x.per_token | x.per_head; /* multiples of a load's elements, all or none */
    with_dots(q->act, w->type, pitches, x.data, w->data, [&](auto t, auto v, auto n) {
        using T = decltype(t);
        using W = decltype(v);
        const heads_args<T, W> a = {
            (T *)out.data, (const T *)x.data, (const W *)w->data, out.per_token,     out.per_head,
            x.per_token,   x.per_head,        n_tokens,           w->rows / n_heads, w->cols};
        launch_heads<T, W, decltype(n)::value>(q, a, (unsigned)n_heads);
    });
}
