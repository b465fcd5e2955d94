/* kernels/cuda/persistent_kernel.cuh - the persistent kernel: one block a multiprocessor goes through all products of a
 * decode step. See persistent_chain.cuh for the idea, the other persistent_*.cuh for the parts. */
#ifndef KERNELS_CUDA_PERSISTENT_KERNEL_CUH
#define KERNELS_CUDA_PERSISTENT_KERNEL_CUH

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/persistent_attention.cuh"
#include "kernels/cuda/persistent_input.cuh"
#include "kernels/cuda/persistent_stream.cuh"

/* Where rank `from`'s partial sums lie in a rank's memory: floats [2][n_ranks][PERSISTENT_MAX_TOKENS][hidden]. */
__device__ static inline size_t chain_sum_at(const chain_args &a, int x, int from, int t, int row)
{
    return (((size_t)x * a.n_ranks + from) * PERSISTENT_MAX_TOKENS + t) * a.hidden + row;
}

/* Which of the two places a sum takes: the other ranks may still read the one before. A parallel layer has one sum only, so
 * there the layers take turns. */
__device__ static inline int chain_sum_place(const chain_args &a, int x, uint32_t epoch)
{
    return a.attention_before == 1 ? x : (int)(epoch & 1);
}

/* Two neighbouring rows of the residual stream are known: kept for the next sum, told to all blocks. */
template <typename T>
__device__ static inline void chain_set_x(const chain_args &a, const chain_shared &sh, int x, int t, int row, float x0,
                                          float x1, uint32_t epoch)
{
    float *residual = sh.at<float>(a.at.residual) + t * a.at.x_rows + row - sh.share[CHAIN_PRODUCTS - 1].begin;
    residual[0] = rounded<T>(x0);
    residual[1] = rounded<T>(x1);
    word_publish(a.x[x] + ((size_t)t * a.hidden + row) / 2, word_pair<T>(x0, x1, epoch));
}

/* This rank's share of two rows of a sum: to all ranks. */
__device__ static inline void chain_push(const chain_args &a, int x, int t, int row, float s0, float s1, uint32_t epoch)
{
    size_t at = chain_sum_at(a, chain_sum_place(a, x, epoch), a.rank, t, row);
    for (int r = 0; r < a.n_ranks; r++)
        word_publish2<true>(a.sum[r] + at, word_float(s0, epoch), word_float(s1, epoch));
}

/* Two rows of the embedded tokens: the sum over the ranks, plus the learned position. */
template <typename T>
__device__ static inline void chain_embedded(const chain_args &a, const chain_shared &sh, int t, int row, float s0,
                                             float s1, uint32_t epoch)
{
    int at = sh.at<int>(a.at.tokens)[2 * a.n_tokens + t] + a.position_offset;
    if (a.position != nullptr && at >= 0 && at < a.position_rows) {
        const T *position = (const T *)a.position + (size_t)at * a.hidden + row;
        s0 = rounded<T>(s0) + to_float(position[0]);
        s1 = rounded<T>(s1) + to_float(position[1]);
    }
    chain_set_x<T>(a, sh, 1, t, row, s0, s1, epoch);
}

static_assert(PERSISTENT_MAX_TOKENS <= CHAIN_WARPS, "every token has a warp");

/* The ranks' shares of this block's rows, added in order of the ranks. A warp has a token. */
template <typename T>
__device__ static inline void chain_reduce(const chain_args &a, const chain_shared &sh, int x, bool embedding,
                                           uint32_t epoch)
{
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    int pairs = (share.end - share.begin) / 2, place = chain_sum_place(a, x, epoch), t = threadIdx.x / 32;
    for (int i = threadIdx.x % 32; t < a.n_tokens && i < pairs; i += 32) {
        int row = share.begin + i * 2;
        ulonglong2 v[PERSISTENT_MAX_RANKS];
        word_await<true>(
            v, [&](int r) { return r < a.n_ranks ? a.sum[a.rank] + chain_sum_at(a, place, r, t, row) : nullptr; },
            epoch);
        float s0 = 0, s1 = 0;
#pragma unroll
        for (int r = 0; r < PERSISTENT_MAX_RANKS; r++) {
            s0 += word_value(v[r].x);
            s1 += word_value(v[r].y);
        }
        const float *residual = sh.at<float>(a.at.residual) + t * a.at.x_rows + row - share.begin;
        if (embedding)
            chain_embedded<T>(a, sh, t, row, s0, s1, epoch);
        else
            chain_set_x<T>(a, sh, x, t, row, residual[0] + rounded<T>(s0), residual[1] + rounded<T>(s1), epoch);
    }
}

template <typename T>
__device__ static inline void chain_embed(const chain_args &a, const chain_shared &sh, uint32_t epoch)
{
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    int pairs = (share.end - share.begin) / 2;
    for (int i = threadIdx.x; i < pairs * a.n_tokens; i += CHAIN_THREADS) {
        int t = i / pairs, row = share.begin + i % pairs * 2, id = sh.at<int>(a.at.tokens)[t] - a.first_id;
        float e0 = 0, e1 = 0;
        if (id >= 0 && id < a.embed_rows) {
            const T *from = (const T *)a.embed + (size_t)id * a.hidden + row;
            e0 = to_float(from[0]);
            e1 = to_float(from[1]);
        }
        if (a.n_ranks > 1)
            chain_push(a, 1, t, row, e0, e1, epoch);
        else
            chain_embedded<T>(a, sh, t, row, e0, e1, epoch);
    }
    if (a.n_ranks > 1)
        chain_reduce<T>(a, sh, 1, true, epoch);
}

/* Two neighbouring results of a product have been summed over the warps: on to whoever needs them. */
template <typename T>
__device__ static inline void chain_result(const chain_args &a, const chain_shared &sh, const chain_product &p, int t,
                                           int row, float s0, float s1, uint32_t epoch)
{
    const chain_share &x_share = sh.share[CHAIN_PRODUCTS - 1];
    int mine = t * a.at.x_rows + row - x_share.begin;
    switch (p.output) {
    case OUTPUT_QKV:
        word_publish(a.qkv + ((size_t)t * p.rows + row) / 2, word_pair<T>(s0, s1, epoch));
        break;
    case OUTPUT_ACTIVATED: /* gated ones come ready */
        if (!p.gated) {
            s0 = activation(a.activation, rounded<T>(s0));
            s1 = activation(a.activation, rounded<T>(s1));
        }
        word_publish(a.activated + ((size_t)t * p.rows + row) / 2, word_pair<T>(s0, s1, epoch));
        break;
    case OUTPUT_KEPT:
        *(float2 *)(sh.at<float>(a.at.kept) + mine) = make_float2(s0, s1);
        break;
    case OUTPUT_SUM: {
        if (a.attention_before != 1) {
            float2 kept = *(const float2 *)(sh.at<float>(a.at.kept) + mine);
            s0 += kept.x;
            s1 += kept.y;
        }
        if (a.n_ranks > 1) {
            chain_push(a, p.x, t, row, s0, s1, epoch);
            break;
        }
        const float *residual = sh.at<float>(a.at.residual) + mine;
        chain_set_x<T>(a, sh, p.x, t, row, residual[0] + rounded<T>(s0), residual[1] + rounded<T>(s1), epoch);
        break;
    }
    case OUTPUT_LOGITS: {
        T *to = (T *)a.logits + (size_t)t * p.rows + row;
        to[0] = from_float<T>(s0);
        if (row + 1 < p.rows)
            to[1] = from_float<T>(s1);
    }
    }
}

/* The warps' sums of one tile, added in order, with the bias. A pair of results a thread, by warps that take turns: `turn`
 * is the first. partial: [CHAIN_WARPS][n_tokens][CHAIN_ROWS] */
template <typename T>
__device__ static inline void chain_finish_tile(const chain_args &a, const chain_shared &sh, const chain_product &p,
                                                const chain_share &share, int tile, int turn, const float *partial,
                                                const float *bias, uint32_t epoch)
{
    int rows = share.tile_rows, pairs = rows / 2; /* 8 or 4 */
    int i = (threadIdx.x / 32 + CHAIN_WARPS - turn) % CHAIN_WARPS * 32 + threadIdx.x % 32;
    int t = p.gated ? i / (CHAIN_GROUP / 2) : i / (CHAIN_ROWS / 2);
    int pair = i - t * pairs, local = tile * rows + pair * 2, row = share.begin + local, n = share.end - share.begin;
    if (t >= a.n_tokens || row >= share.end)
        return;
    const float *from = partial + t * CHAIN_ROWS + pair * 2;
    float2 s = bias != nullptr ? make_float2(bias[local], bias[local + 1]) : make_float2(0, 0);
    float2 up = p.gated && bias != nullptr ? make_float2(bias[n + local], bias[n + local + 1]) : make_float2(0, 0);
#pragma unroll
    for (int v = 0; v < CHAIN_WARPS; v++) {
        float2 x = *(const float2 *)(from + v * a.n_tokens * CHAIN_ROWS);
        s.x += x.x;
        s.y += x.y;
    }
    if (p.gated) {
#pragma unroll
        for (int v = 0; v < CHAIN_WARPS; v++) {
            float2 x = *(const float2 *)(from + v * a.n_tokens * CHAIN_ROWS + rows);
            up.x += x.x;
            up.y += x.y;
        }
        s.x = activation(a.activation, rounded<T>(s.x)) * rounded<T>(up.x);
        s.y = activation(a.activation, rounded<T>(s.y)) * rounded<T>(up.y);
    }
    chain_result<T>(a, sh, p, t, row, s.x, s.y, epoch);
}

/* Element i of a block's share of a bias: gated ones are the gate's, then those of up. As it is: made a float here it would
 * be waited for here. */
template <typename T>
__device__ static inline T chain_bias(const chain_product &p, const chain_share &share, const void *bias, int i)
{
    int n = share.end - share.begin, row = i < n ? share.begin + i : p.rows + share.begin + i - n;
    return ((const T *)bias)[row];
}

template <typename T>
__device__ static inline void chain_input(const chain_args &a, const chain_shared &sh, const chain_product &p,
                                          const chain_share &share, const chain_layer &layer, uint32_t epoch)
{
    input_units units(share, p.cols);
    const unsigned long long *words = p.input == INPUT_ATTENDED ? a.attended : a.activated;
    if (p.input == INPUT_NORMED || p.input == INPUT_SAME)
        /* What the layer before left is its epoch's. */
        input_normed<T>(a, sh, units, a.x[p.x], p.x == 1 ? epoch - 1 : epoch, layer.norm[p.norm],
                        layer.norm_bias[p.norm]);
    else if (units.n > 128)
        input_plain<T, 8>(a, sh, units, words, epoch);
    else
        input_plain<T, 4>(a, sh, units, words, epoch);
}

/* How many tiles the block has finished, for the choice of buffers and of the warps that finish a tile; and products. */
struct chain_count {
    int tiles, products;
};

/* One product of one layer: this block's share of it. */
template <typename T, int SLOTS>
__device__ __forceinline__ static void chain_step(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                                  int k, const chain_layer &layer, chain_count &count, uint32_t epoch)
{
    const chain_product &p = a.product[k];
    const chain_share share = sh.share[k];
    if (share.n_tiles == 0)
        return;
    const void *weights = layer.bias[k % CHAIN_PRODUCTS];
    int n_bias = weights == nullptr ? 0 : (share.end - share.begin) * (p.gated ? 2 : 1);
    float *bias = sh.at<float>(a.at.bias) + count.products++ % 2 * a.at.bias_rows;
    T mine = {};
    if ((int)threadIdx.x < n_bias)
        mine = chain_bias<T>(p, share, weights, threadIdx.x);
    /* A block without a share of the product before has not read its input: and must have waited for it, too, before it
     * makes anything of this layer's. */
    if (p.input != INPUT_SAME || sh.share[k - 1].n_tiles == 0)
        chain_input<T>(a, sh, p, share, layer, epoch);
    for (int i = threadIdx.x; i < n_bias; i += CHAIN_THREADS) /* seen by all after the tile's barrier */
        bias[i] = to_float(i < CHAIN_THREADS ? mine : chain_bias<T>(p, share, weights, i));
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        int size = CHAIN_WARPS * a.n_tokens * CHAIN_ROWS;
        float *partial = sh.at<float>(a.at.partial) + count.tiles % 2 * size;
        chain_tile<T>(ring, a, sh, share.n_steps, chain_tile_rows(share, tile), p.gated, partial);
        chain_sync(); /* one a tile suffices: the next tile's sums go to the other buffer */
        chain_finish_tile<T>(a, sh, p, share, tile, count.tiles % CHAIN_WARPS, partial, n_bias > 0 ? bias : nullptr,
                             epoch);
    }
    if (p.output == OUTPUT_SUM && a.n_ranks > 1)
        chain_reduce<T>(a, sh, p.x, false, epoch);
}

/* Tables into shared memory. */
__device__ static inline void chain_open(const chain_args &a, const chain_shared &sh)
{
    int n_words = (a.n_layers + 1) * (int)(sizeof(chain_layer) / 4);
    for (int i = threadIdx.x; i < n_words; i += CHAIN_THREADS)
        sh.at<uint32_t>(a.at.layers)[i] = ((const uint32_t *)a.layers)[i];
    if (threadIdx.x <= CHAIN_PRODUCTS)
        sh.share[threadIdx.x] = chain_make_share(a.product[threadIdx.x], (int)blockIdx.x, (int)gridDim.x);
    if ((int)threadIdx.x < a.n_tokens) {
        int *tokens = sh.at<int>(a.at.tokens) + threadIdx.x;
        tokens[0] = a.token[threadIdx.x];
        tokens[a.n_tokens] = a.slot[threadIdx.x];
        tokens[2 * a.n_tokens] = a.pos[threadIdx.x];
    }
    for (int i = threadIdx.x; i < a.n_tokens * a.rope_dims; i += CHAIN_THREADS)
        sh.at<float>(a.at.cos_sin)[i] = a.cos_sin[i];
    __syncthreads();
    /* In a parallel layer attention runs beside the MLP, whose first product is for those blocks that have none of it. */
    int n_free, number = attend_free(a, sh, &n_free);
    if (threadIdx.x == 1 && a.attention_before == 2 && n_free > 0)
        sh.share[1] = chain_make_share(a.product[1], number, n_free);
    __syncthreads();
}

/* grid: one block a multiprocessor, all of them resident. SLOTS: of the ring. */
template <typename T, int SLOTS>
__global__ void __launch_bounds__(CHAIN_THREADS + STREAM_THREADS, 1)
    persistent_kernel(const __grid_constant__ chain_args a)
{
    extern __shared__ __align__(1024) char shared[]; /* as the boxes of weights demand */
    const chain_shared sh = {shared, (chain_share *)(shared + a.at.shares)};
    uint32_t step = a.step[blockIdx.x], epoch = step * (uint32_t)(a.n_layers + 1);
    weight_ring<SLOTS> ring(a, sh);
    chain_count count = {0, 0};
    if (threadIdx.x == 0)
        ring.open();
    chain_open(a, sh);
    if (threadIdx.x >= CHAIN_THREADS) {
        give_registers<STREAM_REGISTERS>();
        if (threadIdx.x == CHAIN_THREADS)
            stream_weights<SLOTS>(a, sh);
        return;
    }
    take_registers<CHAIN_REGISTERS>();
    chain_embed<T>(a, sh, epoch);
    for (int product = 0; product <= a.n_layers * CHAIN_PRODUCTS; product++) {
        int k = chain_index(a, product);
        const chain_layer &layer = sh.at<chain_layer>(a.at.layers)[product / CHAIN_PRODUCTS];
        epoch += product % CHAIN_PRODUCTS == 0;
        if (k == a.attention_before)
            chain_attention<T>(a, sh, layer, epoch);
        chain_step<T>(ring, a, sh, k, layer, count, epoch);
    }
    if (threadIdx.x == 0)
        a.step[blockIdx.x] = step + 1;
}

#endif
