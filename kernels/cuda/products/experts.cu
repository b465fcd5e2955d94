/* kernels/cuda/products/experts.cu - mixtures of experts: the router, and the products of the experts that it chose. The host
 * never learns whom: grids are as large as any choice needs, and blocks without tokens end at once. So a recorded step
 * serves every choice. */
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/row_dots.cuh"
#include "kernels/cuda/tensor.cuh"

#include <math.h>

#define WARPS 8

/* ---- the router ---- */

/* logits[t][e], a warp for each e and DOT_TOKENS tokens. grid: experts / WARPS, tokens / DOT_TOKENS */
template <typename T, typename W, int N>
__global__ void route_logits(float *logits, const T *x, const W *w, const void *bias, enum dtype bias_type,
                             int n_tokens, int n_experts, int cols)
{
    after_previous();
    int e = (int)(blockIdx.x * WARPS + threadIdx.x / 32), t0 = (int)blockIdx.y * DOT_TOKENS;
    if (e >= n_experts)
        return;
    const T *row[DOT_TOKENS];
    float sum[DOT_TOKENS];
    for (int t = 0; t < DOT_TOKENS; t++)
        row[t] = x + (size_t)min(t0 + t, n_tokens - 1) * cols;
    row_dots<T, W, N>(sum, row, w + (size_t)e * cols, cols);
    for (int t = 0; t < DOT_TOKENS; t++)
        if (threadIdx.x % 32 == 0 && t0 + t < n_tokens)
            logits[(size_t)(t0 + t) * n_experts + e] = sum[t] + weight_at(bias, bias_type, e, 0.0f);
}

__device__ static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* One token's logits, and what chooses among them. */
struct choice {
    const float *logits;
    const void *bias; /* of the choice alone; NULL: none */
    enum dtype bias_type;
    struct routing how;
    uint32_t groups; /* that are not left out, a bit each */
    uint32_t taken;  /* of the lane's experts: bit j is expert lane + 32 j */
};

/* What an expert is chosen by; what is not a number, and what is of a group that is left out, comes last. */
__device__ static inline float choice_key(const choice &c, int e)
{
    float key = c.how.sigmoid ? sigmoid(c.logits[e]) + weight_at(c.bias, c.bias_type, e, 0.0f) : c.logits[e];
    bool in = c.how.n_groups < 2 || (c.groups >> (e / (c.how.n_experts / c.how.n_groups)) & 1);
    return isnan(key) || !in ? -INFINITY : key;
}

/* The better one of each lane's candidate and its neighbours', n: none. */
__device__ static inline int best_of_warp(float key, int at, int n)
{
    for (int d = 16; d > 0; d /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, key, d);
        int other_at = __shfl_xor_sync(0xffffffffu, at, d);
        bool theirs = other_at < n && (at == n || other > key || (other == key && other_at < at));
        key = theirs ? other : key;
        at = theirs ? other_at : at;
    }
    return at;
}

/* The best expert that is not taken yet, of equal ones the lower; it is taken now. */
__device__ static inline int take_best(choice &c)
{
    float best = 0;
    int n = c.how.n_experts, at = n;
    for (int j = 0, e = threadIdx.x % 32; e < n; j++, e += 32)
        if (!(c.taken >> j & 1) && (at == n || choice_key(c, e) > best)) {
            best = choice_key(c, e);
            at = e;
        }
    at = best_of_warp(best, at, n);
    if (at % 32 == (int)threadIdx.x % 32)
        c.taken |= 1u << at / 32;
    return at;
}

/* The n_kept best groups, by their two best experts. Lane g has group g's score. */
__device__ static inline void keep_groups(choice &c)
{
    int lane = threadIdx.x % 32, n = c.how.n_groups;
    float score = -INFINITY;
    uint32_t kept = 0;
    for (int g = 0; g < n; g++) {
        c.groups = 1u << g;
        c.taken = 0;
        float first = choice_key(c, take_best(c)), both = first + choice_key(c, take_best(c));
        score = lane == g ? both : score;
    }
    for (int i = 0; i < c.how.n_kept; i++)
        kept |= 1u << best_of_warp(score, lane < n && !(kept >> lane & 1) ? lane : n, n);
    c.groups = kept;
    c.taken = 0;
}

/* A warp a token. grid: tokens / WARPS */
__global__ void route_choose(struct routes r, const void *bias, enum dtype bias_type, struct routing how, int n_tokens)
{
    after_previous();
    int t = (int)(blockIdx.x * WARPS + threadIdx.x / 32), lane = threadIdx.x % 32;
    if (t >= n_tokens)
        return;
    choice c = {r.logits + (size_t)t * how.n_experts, bias, bias_type, how, 0, 0};
    int32_t *expert = r.expert + (size_t)t * how.n_chosen;
    float *share = r.share + (size_t)t * how.n_chosen, max = -INFINITY, chosen = 0, all = 0;
    for (int e = lane; e < how.n_experts; e += 32)
        max = fmaxf(max, c.logits[e]);
    for (int d = 16; d > 0; d /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
    for (int e = lane; e < how.n_experts; e += 32)
        all += how.sigmoid ? c.logits[e] : expf(c.logits[e] - max);
    all = warp_sum(all);
    if (how.n_groups > 1)
        keep_groups(c);
    for (int i = 0; i < how.n_chosen; i++) {
        int e = take_best(c);
        float part = how.sigmoid ? sigmoid(c.logits[e]) : expf(c.logits[e] - max);
        chosen += part;
        if (lane == 0) {
            expert[i] = e;
            share[i] = part;
        }
    }
    /* A logit that is no number makes `all` none, and so every share, chosen or not: it must show. */
    float whole = how.normalised ? chosen + 1e-20f : how.sigmoid ? 1.0f : all;
    __syncwarp();
    for (int i = lane; i < how.n_chosen; i += 32)
        share[i] = isnan(all) ? all : how.scale * (share[i] / whole);
}

#define GROUP_THREADS 256

/* The pairs of one expert, in order: where they begin is how many pairs lower experts have. grid: experts */
__global__ void route_group(struct routes r, struct routing how, int n_pairs)
{
    after_previous();
    __shared__ int found[GROUP_THREADS / 32];
    int e = (int)blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, lower = 0;
    for (int p = threadIdx.x; p < n_pairs; p += GROUP_THREADS)
        lower += r.expert[p] < e;
    int at = block_sum(lower);
    if (threadIdx.x == 0)
        r.begin[e] = at;
    if (threadIdx.x == 0 && e == how.n_experts - 1)
        r.begin[e + 1] = n_pairs;
    for (int p0 = 0; p0 < n_pairs; p0 += GROUP_THREADS) {
        int p = p0 + (int)threadIdx.x;
        bool mine = p < n_pairs && r.expert[p] == e;
        unsigned same = __ballot_sync(0xffffffffu, mine);
        if (lane == 0)
            found[warp] = __popc(same);
        __syncthreads();
        int before = __popc(same & ((1u << lane) - 1)), all = 0;
        for (int i = 0; i < GROUP_THREADS / 32; i++) {
            before += i < warp ? found[i] : 0;
            all += found[i];
        }
        if (mine)
            r.pair[at + before] = p;
        at += all;
        __syncthreads();
    }
}

extern "C" void cuda_route(struct queue *q, const struct routes *r, const void *x, const struct weight *router,
                           const struct weight *bias, const struct routing *how, int n_tokens)
{
    nvtx_range range("route");
    if (n_tokens < 1)
        return;
    const void *data = bias ? bias->data : NULL, *of_logits = how->sigmoid ? NULL : data;
    enum dtype type = bias ? bias->type : DTYPE_F32;
    dim3 grid((unsigned)(how->n_experts + WARPS - 1) / WARPS, (unsigned)(n_tokens + DOT_TOKENS - 1) / DOT_TOKENS);
    with_dots(q->act, router->type, router->cols, x, router->data, [&](auto t, auto v, auto n) {
        using T = decltype(t);
        using W = decltype(v);
        launch(q, route_logits<T, W, decltype(n)::value>, grid, dim3(WARPS * 32), 0, r->logits, (const T *)x,
               (const W *)router->data, of_logits, type, n_tokens, how->n_experts, router->cols);
    });
    launch(q, route_choose, dim3((unsigned)(n_tokens + WARPS - 1) / WARPS), dim3(WARPS * 32), 0, *r,
           how->sigmoid ? data : NULL, type, *how, n_tokens);
    launch(q, route_group, dim3((unsigned)how->n_experts), dim3(GROUP_THREADS), 0, *r, *how, n_tokens * how->n_chosen);
}

/* ---- the products ---- */

template <typename T, typename W>
struct expert_args {
    T *out;
    const T *x;
    const W *w;       /* [n_experts, rows, cols] */
    const void *bias; /* [n_experts, rows]; NULL: none */
    enum dtype bias_type;
    const int32_t *begin, *pair;
    int rows, cols;
    int pairs_a_row; /* that share a row of x */
};

/* Of the block's expert. */
template <typename T, typename W>
__device__ static inline float bias_of(const expert_args<T, W> &a, int row)
{
    return weight_at(a.bias, a.bias_type, (int)blockIdx.y * a.rows + row, 0.0f);
}

/* A warp a row of one expert, for all of its tokens. grid: rows / WARPS, experts */
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
#define TILE_PITCH   40 /* elements from row to row in shared memory: eight rows at a time meet no bank twice */
#define TILE_THREADS 128
#define TILE_SPREAD  8 /* blocks that share an expert's tokens */

template <typename T>
struct tile_stage {
    T x[TILE][TILE_PITCH], w[TILE][TILE_PITCH];
};

/* Columns [k0, k0 + TILE_COLS) on their way to a stage; what is beyond an edge becomes zeros. */
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

/* TILE rows of one expert for TILE of its tokens after the other. grid: rows / TILE, experts, TILE_SPREAD */
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
static void tiles(struct queue *q, const expert_args<T, T> &a, int n_experts)
{
    launch(q, experts_tiles<T>, dim3((unsigned)(a.rows + TILE - 1) / TILE, (unsigned)n_experts, TILE_SPREAD),
           dim3(TILE_THREADS), 0, a);
}

#define FEW_TOKENS 16 /* up to which a result has the same bits whatever else is in the batch */

extern "C" void cuda_matmul_experts(struct queue *q, void *out, const void *x, const struct weight *w,
                                    const struct weight *bias, const struct routes *r, const struct routing *how,
                                    enum expert_rows x_rows, int n_tokens)
{
    nvtx_range range("matmul_experts");
    int rows = w->rows / how->n_experts, pairs_a_row = x_rows == X_TOKENS ? how->n_chosen : 1;
    if (n_tokens < 1 || rows < 1)
        return;
    if (weight_is_quantised(w)) {
        experts_of_codes(q, out, x, w, bias, r, how, pairs_a_row, n_tokens, products_stream(q));
        return;
    }
    dim3 grid((unsigned)(rows + WARPS - 1) / WARPS, (unsigned)how->n_experts);
    with_dots(q->act, w->type, w->cols, x, w->data, [&](auto t, auto v, auto n) {
        using T = decltype(t);
        using W = decltype(v);
        const expert_args<T, W> a = {(T *)out,
                                     (const T *)x,
                                     (const W *)w->data,
                                     bias ? (const void *)bias->data : NULL,
                                     bias ? bias->type : DTYPE_F32,
                                     r->begin,
                                     r->pair,
                                     rows,
                                     w->cols,
                                     pairs_a_row};
        if constexpr (std::is_same<T, W>::value && sizeof(T) == 2 && decltype(n)::value == 8) {
            if (n_tokens > FEW_TOKENS && w->cols > 0) {
                tiles<T>(q, a, how->n_experts);
                return;
            }
        }
        launch(q, experts_rows<T, W, decltype(n)::value>, grid, dim3(WARPS * 32), 0, a);
    });
}

/* ---- what becomes of them ---- */

#define THREADS 128

/* grid: columns, tokens */
template <typename T>
__global__ void combine_kernel(T *out, const T *y, const float *share, int n_chosen, int n_tokens, int dim,
                               bool accumulate)
{
    after_previous_alone();
    int c = (int)(blockIdx.x * THREADS + threadIdx.x);
    for (int t = (int)blockIdx.y; t < n_tokens && c < dim; t += (int)gridDim.y) {
        float sum = 0;
        for (int i = 0; i < n_chosen; i++)
            sum = fmaf(share[(size_t)t * n_chosen + i], to_float(y[((size_t)t * n_chosen + i) * dim + c]), sum);
        T *to = out + (size_t)t * dim + c;
        *to = from_float<T>(accumulate ? to_float(*to) + sum : sum);
    }
}

extern "C" void cuda_combine(struct queue *q, void *out, const void *y, const struct routes *r,
                             const struct routing *how, int n_tokens, int dim, bool accumulate)
{
    nvtx_range range("combine");
    if (n_tokens < 1 || dim < 1)
        return;
    dim3 grid((unsigned)(dim + THREADS - 1) / THREADS, (unsigned)(n_tokens < 65535 ? n_tokens : 65535));
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        launch(q, combine_kernel<T>, grid, dim3(THREADS), 0, (T *)out, (const T *)y, r->share, how->n_chosen, n_tokens,
               dim, accumulate);
    });
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
