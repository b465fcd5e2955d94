/* kernels/cuda/products/route.cu - the router: every expert's logit for every token, the experts chosen by the logits,
 * and the pairs of tokens and experts sorted by expert. The host never learns them. Few tokens take one launch, in
 * which the blocks of a cluster divide the logits and the first one chooses; more take two or three. */
#include "kernels/cuda/products/route_few.cuh"
#include "kernels/invariance.h"

#define WARPS 8

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

template <typename T, typename W, int N>
static void route_some(struct queue *q, const route_args<T, W> &a)
{
    const bool invariant = cuda_is_invariant(q);
    if (!invariant && route_by_cluster<T, W, N>(q, a))
        return;
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
        route_some<T, W, decltype(n)::value>(
            q, {*r, (const T *)x, (const W *)router->data, routing_corrects(how) ? NULL : data,
                routing_corrects(how) ? data : NULL, bias ? bias->type : DTYPE_F32, *how, n_tokens, router->cols});
    });
}
