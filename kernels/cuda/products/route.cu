/* kernels/cuda/products/route.cu - the router: every expert's logit for every token, the experts chosen by the logits,
 * and the pairs of tokens and experts sorted by expert. The host never learns them. Few tokens take one launch, in
 * which the blocks of a cluster divide the logits and the first one chooses; more take two or three. */
#include "kernels/cuda/products/route_lanes.cuh"
#include "kernels/cuda/products/row_dots.cuh"
#include "kernels/cuda/tensor.cuh"
#include "kernels/invariance.h"

#include <algorithm>
#include <cooperative_groups.h>

#define WARPS 8

template <typename T, typename W>
struct route_args {
    struct routes to;
    const T *x;
    const W *w;
    const void *of_logits,
        *of_choice; /* added to the logits, or to the values by which experts are chosen; NULL: none */
    enum dtype bias_type;
    struct routing how;
    int n_tokens, cols;
};

/* The choice, given the logits. */
struct choose_args {
    struct routes to;
    const void *bias;
    enum dtype bias_type;
    struct routing how;
    int n_tokens;
};

template <typename T, typename W>
__host__ __device__ static inline choose_args choice_of(const route_args<T, W> &a)
{
    return {a.to, a.of_choice, a.bias_type, a.how, a.n_tokens};
}

__device__ static inline route_choice choice_of_token(const choose_args &a, int t)
{
    size_t pair = (size_t)t * a.how.n_chosen;
    return {a.to.expert + pair, a.to.share + pair, a.to.logits + (size_t)t * a.how.n_experts, a.bias, a.bias_type};
}

/* Stores a logit; also(token, expert, logit) may store it elsewhere, too. */
template <typename T, typename W, typename F>
__device__ static inline void put_logit(const route_args<T, W> &a, int t, int e, float sum, F also)
{
    float logit = sum + weight_at(a.of_logits, a.bias_type, e, 0.0f);
    a.to.logits[(size_t)t * a.how.n_experts + e] = logit;
    also(t, e, logit);
}

/* For logits that are stored once. */
struct stored_once {
    __device__ void operator()(int, int, float) const {}
};

/* Expert e's logits for tokens t0 .. t0 + TOKENS - 1, by a warp. */
template <typename T, typename W, int N, int TOKENS, typename F = stored_once>
__device__ static inline void make_logits(const route_args<T, W> &a, int e, int t0, F also = F())
{
    const T *row[TOKENS];
    float sum[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        row[t] = a.x + (size_t)min(t0 + t, a.n_tokens - 1) * a.cols;
    row_dots<T, W, N>(sum, row, a.w + (size_t)e * a.cols, a.cols);
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        if (threadIdx.x % 32 == 0 && t0 + t < a.n_tokens)
            put_logit(a, t0 + t, e, sum[t], also);
}

/* ---- logits on the tensor cores ---- */

/* True where the router's weights have the activations' 16-bit type, in rows that are loaded 8 elements at a time. */
template <typename T, typename W, int N>
constexpr bool ON_TILES = std::is_same<T, W>::value && sizeof(T) == 2 && N == 8;

#define TILE_TOKENS  16
#define TILE_EXPERTS 16 /* of a warp */

/* 16 tokens' logits of 16 experts, over columns [begin, end), which are multiples of 32. As in matmul_stream.cuh lanes
 * hold 16 bytes of a row of each operand, which permutes the columns within 32, the same for both. */
template <typename T>
__device__ static inline void multiply_tile(float (&sum)[2][4], const route_args<T, T> &a, int t0, int e0, int begin,
                                            int end)
{
    int lane = threadIdx.x % 32, g = lane / 4;
    const T *x[2], *w[2];
    for (int i = 0; i < 2; i++) {
        x[i] = a.x + (size_t)min(t0 + i * 8 + g, a.n_tokens - 1) * a.cols;
        w[i] = a.w + (size_t)min(e0 + i * 8 + g, a.how.n_experts - 1) * a.cols;
    }
#pragma unroll 8
    for (int k = begin + lane % 4 * 8; k < end; k += 32) {
        uint4 of_x[2], of_w[2], none = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            of_x[i] = k < a.cols ? *(const uint4 *)(x[i] + k) : none;
            of_w[i] = k < a.cols ? *(const uint4 *)(w[i] + k) : none;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            tensor_mma<T>(sum[i], of_x[0].x, of_x[1].x, of_x[0].y, of_x[1].y, of_w[i].x, of_w[i].y);
            tensor_mma<T>(sum[i], of_x[0].z, of_x[1].z, of_x[0].w, of_x[1].w, of_w[i].z, of_w[i].w);
        }
    }
}

typedef float tile_sums[TILE_TOKENS][TILE_EXPERTS];

/* Called by a block of N_WARPS warps: the logits of TILE_TOKENS tokens, from t0 on, for N_WARPS / PARTS times
 * TILE_EXPERTS experts, from e0 on. PARTS of the warps split the columns; their sums are added in order. part: shared
 * memory, [N_WARPS]. */
template <typename T, int N_WARPS, int PARTS, typename F = stored_once>
__device__ static inline void tile_logits(const route_args<T, T> &a, tile_sums *part, int t0, int e0, F also = F())
{
    const int OF_BLOCK = N_WARPS / PARTS * TILE_EXPERTS;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, steps = (a.cols + 31) / 32;
    float sum[2][4] = {}; /* of 8 experts each */
    multiply_tile(sum, a, t0, e0 + warp / PARTS * TILE_EXPERTS, warp % PARTS * steps / PARTS * 32,
                  (warp % PARTS + 1) * steps / PARTS * 32);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            part[warp][c / 2 * 8 + lane / 4][i * 8 + lane % 4 * 2 + c % 2] = sum[i][c];
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_TOKENS * OF_BLOCK; i += N_WARPS * 32) {
        int t = i / OF_BLOCK, e = i % OF_BLOCK;
        float logit = 0;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            logit += part[e / TILE_EXPERTS * PARTS + p][t][e % TILE_EXPERTS];
        if (t0 + t < a.n_tokens && e0 + e < a.how.n_experts)
            put_logit(a, t0 + t, e0 + e, logit, also);
    }
}

/* ---- few tokens ---- */

#define FEW_TOKENS       16
#define FEW_BLOCKS       8 /* of the cluster */
#define FEW_THREADS      512
#define FEW_WARPS        (FEW_THREADS / 32)
#define FEW_SHARED_BYTES ((size_t)48 << 10)

/* Prefetches weights that are needed soon to L2 while the preceding kernel ends. */
template <typename T, typename W>
__device__ static inline void prefetch_row(const route_args<T, W> &a, int e)
{
    const char *row = (const char *)(a.w + (size_t)e * a.cols);
    for (size_t at = (size_t)threadIdx.x % 32 * 128; at < (size_t)a.cols * sizeof(W); at += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row + at));
}

/* Sorts pairs by expert, those of one expert by token. expert: the pairs' experts, in shared memory. */
__device__ static inline void sort_few(const struct routes &to, const int32_t *expert, int n_experts, int n_pairs)
{
    for (int i = threadIdx.x; i < n_experts + 1 + n_pairs; i += FEW_THREADS) {
        int p = i - n_experts - 1, e = p < 0 ? i : expert[p], before = 0;
        for (int other = 0; other < n_pairs; other++)
            before += expert[other] < e || (expert[other] == e && other < p);
        if (p < 0)
            to.begin[e] = before;
        else
            to.pair[before] = p;
    }
}

/* Called by one block. logits: shared memory, float [n_tokens][n_experts], then int32_t [n_tokens][n_chosen]. Compiled
 * once for all number types. */
__device__ static __noinline__ void choose_few(const choose_args &a, float *logits)
{
    int n_experts = a.how.n_experts, n_pairs = a.n_tokens * a.how.n_chosen;
    int32_t *expert = (int32_t *)(logits + a.n_tokens * n_experts);
    for (int t = threadIdx.x / 32; t < a.n_tokens; t += FEW_WARPS) {
        route_choice c = choice_of_token(a, t);
        c.logits = logits + t * n_experts;
        c.expert = expert + t * a.how.n_chosen;
        choose_of_token(c, a.how);
    }
    __syncthreads();
    for (int p = threadIdx.x; p < n_pairs; p += FEW_THREADS)
        a.to.expert[p] = expert[p];
    sort_few(a.to, expert, n_experts, n_pairs);
}

/* Called by the cluster: the logits of all experts. The tokens fit into one tile. */
template <typename T, typename W, int N, int TOKENS, typename F>
__device__ static inline void few_logits(const route_args<T, W> &a, tile_sums *part, F also)
{
    if constexpr (ON_TILES<T, W, N>) {
        for (int e0 = (int)blockIdx.x * TILE_EXPERTS; e0 < a.how.n_experts; e0 += FEW_BLOCKS * TILE_EXPERTS) {
            tile_logits<T, FEW_WARPS, FEW_WARPS>(a, part, 0, e0, also);
            __syncthreads(); /* part is free again */
        }
    } else {
        for (int e = (int)blockIdx.x * FEW_WARPS + (int)threadIdx.x / 32; e < a.how.n_experts;
             e += FEW_BLOCKS * FEW_WARPS)
            for (int t0 = 0; t0 < a.n_tokens; t0 += TOKENS)
                make_logits<T, W, N, TOKENS>(a, e, t0, also);
    }
}

/* Shared memory of a block of route_few before the logits. */
template <typename T, typename W, int N>
constexpr size_t FEW_SUMS_BYTES = ON_TILES<T, W, N> ? FEW_WARPS * sizeof(tile_sums) : 0;

/* One cluster, whose blocks store their logits in the first one's shared memory. */
template <typename T, typename W, int N, int TOKENS>
__global__ void __launch_bounds__(FEW_THREADS) route_few(route_args<T, W> a)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ char few_shared[];
    float *logits = (float *)(few_shared + FEW_SUMS_BYTES<T, W, N>);
    auto cluster = cooperative_groups::this_cluster();
    auto begun = cluster.barrier_arrive();
    for (int e = (int)blockIdx.x * FEW_WARPS + (int)threadIdx.x / 32; e < a.how.n_experts; e += FEW_BLOCKS * FEW_WARPS)
        prefetch_row(a, e);
    after_previous();
    cluster.barrier_wait(std::move(begun));
    float *of_first = cluster.map_shared_rank(logits, 0);
    few_logits<T, W, N, TOKENS>(a, (tile_sums *)few_shared,
                                [&](int t, int e, float logit) { of_first[t * a.how.n_experts + e] = logit; });
    cluster.sync();
    if (blockIdx.x == 0)
        choose_few(choice_of(a), logits);
#endif
}

/* ---- any number of tokens ---- */

/* grid: experts / WARPS, tokens / DOT_TOKENS */
template <typename T, typename W, int N>
__global__ void route_logits(route_args<T, W> a)
{
    after_previous();
    int e = (int)(blockIdx.x * WARPS + threadIdx.x / 32);
    if (e < a.how.n_experts)
        make_logits<T, W, N, DOT_TOKENS>(a, e, (int)blockIdx.y * DOT_TOKENS);
}

#define SOME_LOGITS 131072 /* so few that the columns are split, too */

/* grid: tokens, experts */
template <typename T, int PARTS>
__global__ void __launch_bounds__(WARPS * 32) route_logits_tiles(route_args<T, T> a)
{
    __shared__ tile_sums part[WARPS];
    after_previous();
    tile_logits<T, WARPS, PARTS>(a, part, (int)blockIdx.x * TILE_TOKENS,
                                 (int)blockIdx.y * (WARPS / PARTS) * TILE_EXPERTS);
}

#define CLUSTER_MOST 8 /* blocks of a cluster */

/* Logits and choice in one launch: a cluster has TILE_TOKENS tokens, each of its n blocks the logits of every n-th tile
 * of experts and the choice of every n-th token. Blocks store a token's logits in the shared memory of the block that
 * chooses for it: [tokens of a block][experts]. grid: n, tokens / TILE_TOKENS */
template <typename T>
__global__ void __launch_bounds__(WARPS * 32) route_clusters(route_args<T, T> a)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ float logits[];
    __shared__ tile_sums part[WARPS];
    int n = (int)gridDim.x, rank = (int)blockIdx.x, t0 = (int)blockIdx.y * TILE_TOKENS;
    auto cluster = cooperative_groups::this_cluster();
    auto begun = cluster.barrier_arrive();
    for (int e = rank * TILE_EXPERTS + (int)threadIdx.x / 32; e < a.how.n_experts; e += n * TILE_EXPERTS)
        for (int i = 0; i < TILE_EXPERTS && e + i < a.how.n_experts; i += WARPS)
            prefetch_row(a, e + i);
    after_previous();
    cluster.barrier_wait(std::move(begun));
    for (int e0 = rank * TILE_EXPERTS; e0 < a.how.n_experts; e0 += n * TILE_EXPERTS) {
        tile_logits<T, WARPS, WARPS>(a, part, t0, e0, [&](int t, int e, float logit) {
            *cluster.map_shared_rank(&logits[(t - t0) / n * a.how.n_experts + e], (t - t0) % n) = logit;
        });
        __syncthreads(); /* part is free again */
    }
    cluster.sync();
    const choose_args choice = choice_of(a);
    for (int t = (int)threadIdx.x / 32 * n + rank; t < TILE_TOKENS && t0 + t < a.n_tokens; t += WARPS * n) {
        route_choice c = choice_of_token(choice, t0 + t);
        c.logits = logits + t / n * a.how.n_experts;
        choose_of_token(c, a.how);
    }
#endif
}

/* One warp per token. grid: tokens / WARPS */
__global__ void route_choose(choose_args a)
{
    after_previous();
    int t = (int)(blockIdx.x * WARPS + threadIdx.x / 32);
    if (t < a.n_tokens)
        choose_of_token(choice_of_token(a, t), a.how);
}

#define SORT_THREADS 512
#define SORT_AHEAD   4 /* loads that a lane has in flight */

/* Calls f(pair, whether it is the expert's, ballot of the warp's lanes for which it is) for a warp's part of the pairs,
 * in order. */
template <typename F>
__device__ static inline void each_pair(const int32_t *expert, int e, int begin, int end, F f)
{
    for (int p0 = begin; p0 < end; p0 += 32 * SORT_AHEAD) {
        int32_t found[SORT_AHEAD];
#pragma unroll
        for (int i = 0; i < SORT_AHEAD; i++) {
            int p = p0 + i * 32 + (int)threadIdx.x % 32;
            found[i] = p < end ? expert[p] : ROUTING_MAX_EXPERTS;
        }
#pragma unroll
        for (int i = 0; i < SORT_AHEAD; i++)
            f(p0 + i * 32 + (int)threadIdx.x % 32, found[i], __ballot_sync(0xffffffffu, found[i] == e));
    }
}

/* The pairs of one expert, in order: they begin at the number of pairs of lower experts. Each warp scans a part of all
 * pairs twice: to count, and to place. grid: experts */
__global__ void __launch_bounds__(SORT_THREADS) route_sort(struct routes r, struct routing how, int n_pairs)
{
    after_previous();
    __shared__ int of_warp[SORT_THREADS / 32];
    int e = (int)blockIdx.x, warp = (int)threadIdx.x / 32, lower = 0, n = 0;
    int part = (n_pairs + SORT_THREADS - 1) / SORT_THREADS * 32, begin = min(warp * part, n_pairs);
    int end = min(begin + part, n_pairs);
    each_pair(r.expert, e, begin, end, [&](int, int32_t of, unsigned same) {
        lower += of < e;
        n += __popc(same);
    });
    if (threadIdx.x % 32 == 0)
        of_warp[warp] = n;
    int at = block_sum(lower); /* which also makes of_warp visible to all */
    if (threadIdx.x == 0)
        r.begin[e] = at;
    if (threadIdx.x == 0 && e == how.n_experts - 1)
        r.begin[e + 1] = n_pairs;
    for (int i = 0; i < warp; i++)
        at += of_warp[i];
    each_pair(r.expert, e, begin, end, [&](int p, int32_t of, unsigned same) {
        if (of == e)
            r.pair[at + __popc(same & ((1u << threadIdx.x % 32) - 1))] = p;
        at += __popc(same);
    });
}

/* ---- the operation ---- */

template <typename T, typename W, int N>
static void launch_logits(struct queue *q, const route_args<T, W> &a)
{
    dim3 grid((unsigned)(a.how.n_experts + WARPS - 1) / WARPS, (unsigned)(a.n_tokens + DOT_TOKENS - 1) / DOT_TOKENS);
    launch(q, route_logits<T, W, N>, grid, dim3(WARPS * 32), 0, a);
}

template <typename T, int PARTS>
static void launch_tiles(struct queue *q, const route_args<T, T> &a)
{
    const int OF_BLOCK = WARPS / PARTS * TILE_EXPERTS;
    dim3 grid((unsigned)(a.n_tokens + TILE_TOKENS - 1) / TILE_TOKENS,
              (unsigned)(a.how.n_experts + OF_BLOCK - 1) / OF_BLOCK);
    launch(q, route_logits_tiles<T, PARTS>, grid, dim3(WARPS * 32), 0, a);
}

/* Returns false for tokens that other kernels have. */
template <typename T, typename W, int N>
static bool route_by_clusters(struct queue *q, const route_args<T, W> &a)
{
    if constexpr (ON_TILES<T, W, N>) {
        bool some = (size_t)a.n_tokens * (size_t)a.how.n_experts <= SOME_LOGITS;
        if (!some || !cuda_state(q)->launches_early || (a.n_tokens <= FEW_TOKENS && !cuda_is_invariant(q)))
            return false;
        int n = std::min(CLUSTER_MOST, (a.how.n_experts + TILE_EXPERTS - 1) / TILE_EXPERTS);
        size_t shared = (size_t)((TILE_TOKENS + n - 1) / n * a.how.n_experts) * sizeof(float);
        launch_clusters(q, n, route_clusters<T>,
                        dim3((unsigned)n, (unsigned)(a.n_tokens + TILE_TOKENS - 1) / TILE_TOKENS), dim3(WARPS * 32),
                        shared, a);
        return true;
    }
    (void)q, (void)a;
    return false;
}

/* Shared memory of a block of route_few. */
template <typename T, typename W, int N>
static size_t few_bytes(const route_args<T, W> &a)
{
    return FEW_SUMS_BYTES<T, W, N> + (size_t)a.n_tokens * (size_t)(a.how.n_experts + a.how.n_chosen) * sizeof(float);
}

template <typename T, typename W, int N>
static void route_some(struct queue *q, const route_args<T, W> &a)
{
    size_t shared = few_bytes<T, W, N>(a);
    bool few = a.n_tokens <= FEW_TOKENS && shared <= FEW_SHARED_BYTES, invariant = cuda_is_invariant(q);
    if (few && cuda_state(q)->launches_early && !invariant) {
        launch_clusters(q, FEW_BLOCKS, a.n_tokens == 1 ? route_few<T, W, N, 1> : route_few<T, W, N, DOT_TOKENS>,
                        dim3(FEW_BLOCKS), dim3(FEW_THREADS), shared, a);
        return;
    }
    if (!route_by_clusters<T, W, N>(q, a)) {
        if constexpr (ON_TILES<T, W, N>) {
            if (a.n_tokens <= FEW_TOKENS && !invariant)
                launch_logits<T, W, N>(q, a);
            else if (invariant || (size_t)a.n_tokens * (size_t)a.how.n_experts <= SOME_LOGITS)
                launch_tiles<T, WARPS>(q, a);
            else
                launch_tiles<T, 1>(q, a);
        } else {
            launch_logits<T, W, N>(q, a);
        }
        launch(q, route_choose, dim3((unsigned)(a.n_tokens + WARPS - 1) / WARPS), dim3(WARPS * 32), 0, choice_of(a));
    }
    launch(q, route_sort, dim3((unsigned)a.how.n_experts), dim3(SORT_THREADS), 0, a.to, a.how,
           a.n_tokens * a.how.n_chosen);
}

extern "C" void cuda_route(struct queue *q, const struct routes *r, const void *x, const struct weight *router,
                           const struct weight *bias, const struct routing *how, int n_tokens)
{
    nvtx_range range("route");
    if (n_tokens < 1)
        return;
    const void *data = bias ? bias->data : NULL;
    with_dots(q->act, router->type, router->cols, x, router->data, [&](auto t, auto v, auto n) {
        using T = decltype(t);
        using W = decltype(v);
        route_some<T, W, decltype(n)::value>(q, {*r, (const T *)x, (const W *)router->data, how->sigmoid ? NULL : data,
                                                 how->sigmoid ? data : NULL, bias ? bias->type : DTYPE_F32, *how,
                                                 n_tokens, router->cols});
    });
}
