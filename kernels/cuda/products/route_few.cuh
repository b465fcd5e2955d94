/* kernels/cuda/products/route_few.cuh - the router for few tokens in one launch: the blocks of a cluster divide the
 * experts, and the first block, which gets all logits, chooses and sorts. On the tensor cores a block's weights are in
 * registers before the preceding kernel is done. */
#ifndef PRODUCTS_ROUTE_FEW_CUH
#define PRODUCTS_ROUTE_FEW_CUH

#include "kernels/cuda/products/route_logits.cuh"

#include <algorithm>
#include <cooperative_groups.h>
#include <limits.h>

#define FEW_TOKENS       16
#define FEW_BLOCKS       8 /* of the cluster, at most */
#define FEW_THREADS      512
#define FEW_WARPS        (FEW_THREADS / 32)
#define FEW_SHARED_BYTES ((size_t)48 << 10)
#define FEW_STEPS        6 /* of 32 columns, loaded at once */
#define FEW_TILE         8 /* tokens or experts of a product */

/* ---- the choice, by the first block ---- */

/* Its shared memory: the pairs, as experts first, then as keys by which they are sorted: the expert, then the pair's
 * number; a multiple of four. Behind them the logits, [n_tokens][n_experts]. */
__host__ __device__ static inline int few_keys(int n_pairs)
{
    return (n_pairs + 3) / 4 * 4;
}

/* Sorts pairs by expert, those of one expert by token. */
__device__ static inline void sort_few(const struct routes &to, const int32_t *key, int n_experts, int n_pairs)
{
    for (int i = threadIdx.x; i < n_experts + 1 + n_pairs; i += FEW_THREADS) {
        const int p = i - n_experts - 1, mine = p < 0 ? i << 16 : key[p];
        int before = 0;
#pragma unroll 4
        for (int other = 0; other < n_pairs; other += 4) {
            const int4 k = *(const int4 *)(key + other);
            before += (k.x < mine) + (k.y < mine) + (k.z < mine) + (k.w < mine);
        }
        if (p < 0)
            to.begin[i] = before;
        else
            to.pair[before] = p;
    }
}

/* Compiled once for all number types. */
__device__ static __noinline__ void choose_few(const choose_args &a, int32_t *key)
{
    const int n_experts = a.how.n_experts, n_chosen = a.how.n_chosen, n_pairs = a.n_tokens * n_chosen;
    const float *logits = (const float *)(key + few_keys(n_pairs));
    for (int t = threadIdx.x / 32; t < a.n_tokens; t += FEW_WARPS) {
        route_choice c = choice_of_token(a, t);
        c.logits = logits + t * n_experts;
        c.expert = key + t * n_chosen;
        choose_of_token(c, a.how);
        __syncwarp();
        for (int p = t * n_chosen + (int)threadIdx.x % 32; p < (t + 1) * n_chosen; p += 32) {
            const int e = key[p];
            a.to.expert[p] = e;
            key[p] = e << 16 | p;
        }
    }
    if (threadIdx.x < few_keys(n_pairs) - n_pairs)
        key[n_pairs + threadIdx.x] = INT_MAX;
    __syncthreads();
    sort_few(a.to, key, n_experts, n_pairs);
}

/* ---- logits of any types ---- */

/* grid: FEW_BLOCKS, one cluster */
template <typename T, typename W, int N, int TOKENS>
__global__ void __launch_bounds__(FEW_THREADS) route_few(route_args<T, W> a)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ int4 few_shared[];
    int32_t *key = (int32_t *)few_shared;
    auto cluster = cooperative_groups::this_cluster();
    auto begun = cluster.barrier_arrive();
    const int first = (int)blockIdx.x * FEW_WARPS + (int)threadIdx.x / 32;
    for (int e = first; e < a.how.n_experts; e += FEW_BLOCKS * FEW_WARPS)
        prefetch_row(a, e);
    after_previous();
    cluster.barrier_wait(std::move(begun));
    float *logits = (float *)cluster.map_shared_rank(key, 0) + few_keys(a.n_tokens * a.how.n_chosen);
    for (int e = first; e < a.how.n_experts; e += FEW_BLOCKS * FEW_WARPS)
        for (int t0 = 0; t0 < a.n_tokens; t0 += TOKENS)
            make_logits<T, W, N, TOKENS>(a, e, t0,
                                         [&](int t, int of, float logit) { logits[t * a.how.n_experts + of] = logit; });
    cluster.sync();
    if (blockIdx.x == 0)
        choose_few(choice_of(a), key);
#endif
}

/* ---- logits on the tensor cores ---- */

/* A warp's part of the logits of TILES times FEW_TILE experts, for TOKENS times FEW_TILE tokens: columns [begin, end),
 * multiples of 32. Lanes hold 16 bytes of a row, see multiply_tile. */
template <typename T, int TILES, int TOKENS>
struct few_part {
    const route_args<T, T> &a;
    int begin, end;
    uint4 w[FEW_STEPS][TILES]; /* of the first steps */
    float sum[TILES][4];

    __device__ few_part(const route_args<T, T> &args) : a(args)
    {
        const int warp = (int)threadIdx.x / 32, steps = (a.cols + 31) / 32;
        begin = warp * steps / FEW_WARPS * 32, end = (warp + 1) * steps / FEW_WARPS * 32;
    }
    __device__ static uint4 piece(const T *row, int k, int before)
    {
        return k < before ? *(const uint4 *)(row + k) : make_uint4(0, 0, 0, 0);
    }
    /* FEW_STEPS steps from column k0 on, of experts from e0 on. */
    __device__ void load(int e0, int k0)
    {
        const int lane = threadIdx.x % 32, before = min(end, a.cols);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const T *row = a.w + (size_t)min(e0 + i * FEW_TILE + lane / 4, a.how.n_experts - 1) * a.cols;
#pragma unroll
            for (int s = 0; s < FEW_STEPS; s++)
                w[s][i] = piece(row, k0 + s * 32 + lane % 4 * 8, before);
        }
    }
    __device__ void multiply(int k0)
    {
        const int lane = threadIdx.x % 32, before = min(end, a.cols);
        uint4 x[FEW_STEPS][2] = {};
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            const T *row = a.x + (size_t)min(i * FEW_TILE + lane / 4, a.n_tokens - 1) * a.cols;
#pragma unroll
            for (int s = 0; s < FEW_STEPS; s++)
                x[s][i] = piece(row, k0 + s * 32 + lane % 4 * 8, before);
        }
#pragma unroll
        for (int s = 0; s < FEW_STEPS; s++)
#pragma unroll
            for (int i = 0; i < TILES && k0 + s * 32 < end; i++) {
                tensor_mma<T>(sum[i], x[s][0].x, x[s][1].x, x[s][0].y, x[s][1].y, w[s][i].x, w[s][i].y);
                tensor_mma<T>(sum[i], x[s][0].z, x[s][1].z, x[s][0].w, x[s][1].w, w[s][i].z, w[s][i].w);
            }
    }
    /* loaded: the first steps' weights are here. */
    __device__ void work(int e0, bool loaded)
    {
        memset(sum, 0, sizeof sum);
        for (int k0 = begin; k0 < end; k0 += FEW_STEPS * 32) {
            if (!loaded || k0 > begin)
                load(e0, k0);
            multiply(k0);
        }
    }
    __device__ void store(float (&to)[TOKENS * FEW_TILE][TILES * FEW_TILE]) const
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int c = 0; c < 2 * TOKENS; c++)
                to[c / 2 * FEW_TILE + lane / 4][i * FEW_TILE + lane % 4 * 2 + c % 2] = sum[i][c];
    }
};

/* The warps' parts are added in order. grid: up to FEW_BLOCKS, one cluster */
template <typename T, int TILES, int TOKENS>
__global__ void __launch_bounds__(FEW_THREADS) route_few_tiles(route_args<T, T> a)
{
#if __CUDA_ARCH__ >= 900
    const int EXPERTS = TILES * FEW_TILE;
    extern __shared__ int4 few_shared[];
    __shared__ float part[FEW_WARPS][TOKENS * FEW_TILE][EXPERTS];
    const int t = (int)threadIdx.x / EXPERTS, of_tile = (int)threadIdx.x % EXPERTS, first = (int)blockIdx.x * EXPERTS;
    int32_t *key = (int32_t *)few_shared;
    auto cluster = cooperative_groups::this_cluster();
    auto begun = cluster.barrier_arrive();
    few_part<T, TILES, TOKENS> mine(a);
    mine.load(first, mine.begin);
    float bias = bias_of_logit(a, first + of_tile);
    after_previous();
    cluster.barrier_wait(std::move(begun));
    float *logits = (float *)cluster.map_shared_rank(key, 0) + few_keys(a.n_tokens * a.how.n_chosen);
    for (int e0 = first; e0 < a.how.n_experts; e0 += (int)gridDim.x * EXPERTS) {
        const int e = e0 + of_tile;
        mine.work(e0, e0 == first);
        mine.store(part[threadIdx.x / 32]);
        __syncthreads();
        if (t < a.n_tokens && e < a.how.n_experts) {
            float sum = 0;
#pragma unroll
            for (int p = 0; p < FEW_WARPS; p++)
                sum += part[p][t][of_tile];
            logits[t * a.how.n_experts + e] = a.to.logits[(size_t)t * a.how.n_experts + e] = sum + bias;
        }
        bias = bias_of_logit(a, e + (int)gridDim.x * EXPERTS);
        __syncthreads(); /* part is free again */
    }
    auto done = cluster.barrier_arrive();
    if (blockIdx.x != 0)
        return;
    cluster.barrier_wait(std::move(done));
    choose_few(choice_of(a), key);
#endif
}

/* ---- launches ---- */

/* Room for the parts on the tensor cores. */
template <typename T, typename W, int N>
constexpr size_t FEW_SUMS_BYTES = ON_TILES<T, W, N> ? sizeof(float) * FEW_WARPS *FEW_TOKENS * 2 * FEW_TILE : 0;

template <typename T, typename W>
static size_t few_bytes(const route_args<T, W> &a)
{
    return sizeof(float) * (size_t)(few_keys(a.n_tokens * a.how.n_chosen) + a.n_tokens * a.how.n_experts);
}

template <typename T, int TILES>
static void launch_few_tiles(struct queue *q, const route_args<T, T> &a)
{
    const int n = std::min(FEW_BLOCKS, (a.how.n_experts + TILES * FEW_TILE - 1) / (TILES * FEW_TILE));
    launch_clusters(q, n, a.n_tokens <= FEW_TILE ? route_few_tiles<T, TILES, 1> : route_few_tiles<T, TILES, 2>,
                    dim3((unsigned)n), dim3(FEW_THREADS), few_bytes(a), a);
}

/* Returns false for tokens that other kernels have. */
template <typename T, typename W, int N>
static bool route_by_cluster(struct queue *q, const route_args<T, W> &a)
{
    if (a.n_tokens > FEW_TOKENS || FEW_SUMS_BYTES<T, W, N> + few_bytes(a) > FEW_SHARED_BYTES ||
        !cuda_state(q)->launches_early)
        return false;
    if constexpr (ON_TILES<T, W, N>) {
        if (a.how.n_experts <= FEW_BLOCKS * FEW_TILE)
            launch_few_tiles<T, 1>(q, a);
        else
            launch_few_tiles<T, 2>(q, a);
    } else {
        launch_clusters(q, FEW_BLOCKS, a.n_tokens == 1 ? route_few<T, W, N, 1> : route_few<T, W, N, DOT_TOKENS>,
                        dim3(FEW_BLOCKS), dim3(FEW_THREADS), few_bytes(a), a);
    }
    return true;
}

#endif
