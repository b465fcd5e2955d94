/* kernels/cuda/step/persistent_experts_route.cuh - the router's logits of one token, in kernels with CHAIN_LONE. A
 * product of its own would wait for the whole residual stream, and everybody for its results. Instead a block
 * multiplies the rows that it has just summed by the norm's weights and the router's columns for them, and adds these
 * shares to sums of all blocks. So the logits arrive together with the residual stream; only the norm's factor is
 * missing, which every reader computes. The norm's result is not rounded on the way. */
#ifndef STEP_PERSISTENT_EXPERTS_ROUTE_CUH
#define STEP_PERSISTENT_EXPERTS_ROUTE_CUH

#include "kernels/cuda/step/persistent_choice.cuh"
#include "kernels/cuda/step/persistent_kernel.cuh"

/* A word to which many blocks add shares, with the same bits in any order: integers, counted in the upper bits. It is
 * never cleared: a reader subtracts what it read before. A share beyond 2^22 is cut off; a NaN shows in the norm. */
#define SHARE_BITS      44
#define SHARE_UNIT      0x1p-20f
#define SHARE_ZERO      (1ll << (SHARE_BITS - 1))
#define SHARES_SUM_BITS 54
#define SHARES_MOST     ((1 << (64 - SHARES_SUM_BITS)) - 1)

/* The sum of expert e: four share a sector of memory, each sector has a line of its own, so that the parts of L2 add
 * side by side. */
__host__ __device__ static inline int route_sum_at(int e)
{
    return e / 4 * 16 + e % 4;
}

/* Shares that are added to a sum: one by each warp that has set rows of the residual stream. */
static inline int route_shares(const chain_product &out, int n_ranks, int n_blocks)
{
    int n = 0;
    for (int b = 0; b < n_blocks; b++) {
        struct chain_share s = chain_make_share(out, b, n_blocks);
        n += n_ranks == 1 ? s.n_tiles : ((s.end - s.begin) / 2 + FINISH_LANES - 1) / FINISH_LANES;
    }
    return n;
}

/* Shared memory: the sums before this layer, [n_experts]; a block's rows of the residual stream times the norm's
 * weights, in pairs, [x_rows / 2]; pairs of weights for these rows, [x_rows / 2][n_experts + 1], the last ones are the
 * norm's. */
static inline int route_bytes(int n_experts, int x_rows)
{
    return n_experts * 8 + x_rows / 2 * 8 + x_rows / 2 * (n_experts + 1) * 4;
}

__device__ static inline unsigned long long *route_before(const expert_args &a, const chain_shared &sh)
{
    return sh.at<unsigned long long>(a.route.at);
}

__device__ static inline float2 *route_rows(const expert_args &a, const chain_shared &sh)
{
    return (float2 *)(route_before(a, sh) + a.how.n_experts);
}

__device__ static inline uint32_t *route_weights(const expert_args &a, const chain_shared &sh)
{
    return (uint32_t *)(route_rows(a, sh) + a.at.x_rows / 2);
}

/* Reads the sums of the steps before. Called by the computing threads before their first chain_sync. */
__device__ static inline void route_open(const expert_args &a, const chain_shared &sh)
{
    if ((int)threadIdx.x < a.how.n_experts)
        route_before(a, sh)[threadIdx.x] = a.route.sums[route_sum_at((int)threadIdx.x)];
}

/* Copies 4 bytes to shared memory, as async_copy copies 16. */
__device__ static inline void async_copy_word(uint32_t *shared, const uint32_t *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}

/* Has a layer's weights copied to shared memory. They are there for all after route_arrive and a chain_sync. */
__device__ static inline void route_fetch(const expert_args &a, const chain_shared &sh, const void *norm, int layer)
{
    const int n = a.how.n_experts, begin = sh.share[1].begin, pairs = (sh.share[1].end - begin) / 2;
    const uint32_t *router = (const uint32_t *)a.route.weights[layer];
#pragma unroll 1
    for (int p = threadIdx.x % FINISH_LANES; p < pairs; p += FINISH_LANES)
#pragma unroll 1
        for (int e = threadIdx.x / FINISH_LANES; e <= n; e += CHAIN_THREADS / FINISH_LANES) {
            const uint32_t *row = e < n ? router + (size_t)e * a.hidden / 2 : (const uint32_t *)norm;
            async_copy_word(route_weights(a, sh) + p * (n + 1) + e, row + begin / 2 + p);
        }
    async_commit();
}

__device__ static inline void route_arrive(void)
{
    async_wait<0>();
}

__device__ static inline void route_add_share(unsigned long long *to, float x)
{
    const float most = 0x1p22f; /* NaN becomes that, too */
    long long share = __float2ll_rn(fmaxf(-most, fminf(most, x)) * (1 / SHARE_UNIT));
    unsigned long long word = (1ull << SHARES_SUM_BITS) + (unsigned long long)(share + SHARE_ZERO);
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

/* Adds the shares of n pairs of rows, at most FINISH_LANES, which lanes of this warp have set; the block's pairs are
 * counted from `first` on. Loops are short: what is executed once a layer is fetched once a layer. */
template <typename T>
__device__ static inline void route_add_pairs(const expert_args &a, const chain_shared &sh, int first, int n)
{
    const int pitch = a.how.n_experts + 1, lane = threadIdx.x % 32;
    const uint32_t *weights = route_weights(a, sh) + first * pitch;
    float2 *x = route_rows(a, sh) + first;
    __syncwarp();
    if (lane < n) {
        float2 v = sh.at<float2>(a.at.residual)[first + lane], w = tensor_unpack<T>(weights[lane * pitch + pitch - 1]);
        x[lane] = make_float2(v.x * w.x, v.y * w.y);
    }
    __syncwarp();
#pragma unroll 1
    for (int e = lane; e < a.how.n_experts; e += 32) {
        float sum = 0;
#pragma unroll 4
        for (int p = 0; p < n; p++) {
            float2 w = tensor_unpack<T>(weights[p * pitch + e]);
            sum = fmaf(x[p].x, w.x, fmaf(x[p].y, w.y, sum));
        }
        route_add_share(a.route.sums + route_sum_at(e), sum);
    }
}

/* After the product that ends attention: adds the block's shares. count: including that product's tiles */
template <typename T>
__device__ static inline void route_add(const expert_args &a, const chain_shared &sh, const chain_count &count)
{
    const chain_share &share = sh.share[1];
    const int warp = threadIdx.x / 32, pairs = (share.end - share.begin) / 2;
    int part = warp, of_part = FINISH_LANES; /* the part of the pairs that this warp has set */
    if (a.n_ranks == 1) {
        part = (warp + 2 * CHAIN_WARPS - (count.tiles - share.n_tiles) % CHAIN_WARPS) % CHAIN_WARPS;
        of_part = share.tile_rows / 2;
    }
    if (part * of_part < pairs)
        route_add_pairs<T>(a, sh, part * of_part, min(pairs - part * of_part, of_part));
}

/* Waits for all shares of expert e's logit, but for the norm's factor. */
__device__ static inline float route_await(const expert_args &a, const chain_shared &sh, int e)
{
    const unsigned long long *from = a.route.sums + route_sum_at(e), mask = (1ull << SHARES_SUM_BITS) - 1;
    unsigned long long *before = route_before(a, sh) + e, now, all;
    unsigned rounds = 0;
    for (;;) {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(from) : "memory");
        all = now - *before;
        if ((int)(all >> SHARES_SUM_BITS) == a.route.n_shares)
            break;
        if (++rounds == word_patience.for_own)
            word_give_up<false>(0, (uint32_t)now);
    }
    *before = now;
    return (float)((long long)(all & mask) - a.route.n_shares * SHARE_ZERO) * SHARE_UNIT;
}

/* The unconverted bias of expert threadIdx.x: a conversion would wait for the load. */
template <typename T>
__device__ static inline T route_bias(const expert_args &a, const expert_layer &more)
{
    bool has = more.router_bias != nullptr && (int)threadIdx.x < a.how.n_experts;
    return has ? ((const T *)more.router_bias)[threadIdx.x] : from_float<T>(0);
}

/* Reads the logits, and makes the keys of the choice. bias: of expert threadIdx.x. The norm's statistics are those of
 * the last input. */
__device__ static inline void route_await_logits(const expert_args &a, const chain_shared &sh, const expert_choice *c,
                                                 float bias)
{
    const int e = threadIdx.x, pitch = expert_logits_pitch(a.how.n_experts);
    static_assert(EXPERT_MAX <= CHAIN_THREADS, "a thread has an expert");
    if (e / 32 * 32 >= pitch)
        return;
    float factor = norm_whole<NORM_RMS>(sh.at<float4>(a.at.stats), a.inverse_hidden, a.eps).y;
    if (e >= pitch)
        return;
    float logit = e < a.how.n_experts ? fmaf(route_await(a, sh, e), factor, bias) : 0.0f;
    choice_logits(a, c)[e] = logit;
    choice_keys(a, c)[e] = e < a.how.n_experts ? ordered(logit) : 0;
}

#endif
