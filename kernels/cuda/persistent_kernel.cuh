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

/* This rank's share of two rows of a sum: to all ranks, which a warp's lanes of equal results share out. */
__device__ static inline void chain_push(const chain_args &a, int x, int t, int row, float s0, float s1, uint32_t epoch,
                                         int first, int step)
{
    size_t at = chain_sum_at(a, chain_sum_place(a, x, epoch), a.rank, t, row);
#pragma unroll 1
    for (int r = first; r < a.n_ranks; r += step)
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

/* The shares of up to N ranks in this block's rows, added in order of the ranks. A warp has a token. */
template <typename T, int N>
__device__ static inline void chain_reduce_ranks(const chain_args &a, const chain_shared &sh, int x, bool embedding,
                                                 uint32_t epoch)
{
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    int pairs = (share.end - share.begin) / 2, place = chain_sum_place(a, x, epoch), t = threadIdx.x / 32;
    const size_t stride = (size_t)PERSISTENT_MAX_TOKENS * a.hidden;
#pragma unroll 1
    for (int i = threadIdx.x % 32; t < a.n_tokens && i < pairs; i += 32) {
        int row = share.begin + i * 2;
        const unsigned long long *from = a.sum[a.rank] + chain_sum_at(a, place, 0, t, row);
        const float *residual = sh.at<float>(a.at.residual) + t * a.at.x_rows + row - share.begin;
        float before[2] = {residual[0], residual[1]};
        ulonglong2 v[N];
        word_await<true>(
            v, [&](int r) { return r < a.n_ranks; }, [&](int r) { return from + r * stride; }, epoch);
        float s0 = 0, s1 = 0;
#pragma unroll
        for (int r = 0; r < N; r++) {
            s0 += word_value(v[r].x);
            s1 += word_value(v[r].y);
        }
        if (embedding)
            chain_embedded<T>(a, sh, t, row, s0, s1, epoch);
        else
            chain_set_x<T>(a, sh, x, t, row, before[0] + rounded<T>(s0), before[1] + rounded<T>(s1), epoch);
    }
}

template <typename T>
__device__ static inline void chain_reduce(const chain_args &a, const chain_shared &sh, int x, bool embedding,
                                           uint32_t epoch)
{
    if (a.n_ranks <= 2)
        chain_reduce_ranks<T, 2>(a, sh, x, embedding, epoch);
    else if (a.n_ranks <= 4)
        chain_reduce_ranks<T, 4>(a, sh, x, embedding, epoch);
    else
        chain_reduce_ranks<T, PERSISTENT_MAX_RANKS>(a, sh, x, embedding, epoch);
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
            chain_push(a, 1, t, row, e0, e1, epoch, 0, 1);
        else
            chain_embedded<T>(a, sh, t, row, e0, e1, epoch);
    }
    if (a.n_ranks > 1)
        chain_reduce<T>(a, sh, 1, true, epoch);
}

#define FINISH_LANES 8                   /* a pair of rows each: all of a tile */
#define FINISH_PARTS (32 / FINISH_LANES) /* of the warps' sums; the lanes of a pair then know the same */

/* Two neighbouring results of a product: on to whoever needs them. part: of the lanes that know them. */
template <typename T>
__device__ static inline void chain_result(const chain_args &a, const chain_shared &sh, const chain_product &p, int t,
                                           int row, float s0, float s1, int part, uint32_t epoch)
{
    int mine = t * a.at.x_rows + row - sh.share[CHAIN_PRODUCTS - 1].begin;
    if (p.output == OUTPUT_SUM) {
        if (a.attention_before != 1) {
            float2 kept = *(const float2 *)(sh.at<float>(a.at.kept) + mine);
            s0 += kept.x;
            s1 += kept.y;
        }
        if (a.n_ranks > 1) {
            chain_push(a, p.x, t, row, s0, s1, epoch, part, FINISH_PARTS);
        } else if (part == 0) {
            const float *residual = sh.at<float>(a.at.residual) + mine;
            chain_set_x<T>(a, sh, p.x, t, row, residual[0] + rounded<T>(s0), residual[1] + rounded<T>(s1), epoch);
        }
    } else if (part > 0) {
        return;
    } else if (p.output == OUTPUT_KEPT) {
        *(float2 *)(sh.at<float>(a.at.kept) + mine) = make_float2(s0, s1);
    } else if (p.output == OUTPUT_LOGITS) {
        T *to = (T *)a.logits + (size_t)t * p.rows + row;
        to[0] = from_float<T>(s0);
        if (row + 1 < p.rows)
            to[1] = from_float<T>(s1);
    } else {
        unsigned long long *words = p.output == OUTPUT_QKV ? a.qkv : a.activated;
        word_publish(words + ((size_t)t * p.rows + row) / 2, word_pair<T>(s0, s1, epoch));
    }
}

/* What the lanes of equal `pair` have summed up, for all of them. */
__device__ static inline float chain_join(float x)
{
#pragma unroll
    for (int d = FINISH_LANES; d < 32; d *= 2)
        x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* The warps' sums of one tile, with the bias; a warp has a token, they take turns: `turn` is the first one. Each lane adds the
 * sums of a part of the warps in one pair of rows. partial: [CHAIN_WARPS][n_tokens][CHAIN_ROWS] */
template <typename T>
__device__ static inline void chain_finish_tile(const chain_args &a, const chain_shared &sh, const chain_product &p,
                                                const chain_share &share, int tile, int turn, const float *partial,
                                                const float *bias, uint32_t epoch)
{
    const int WARPS = CHAIN_WARPS / FINISH_PARTS, UP = CHAIN_GROUP / 2; /* a gated tile's second half */
    int t = (threadIdx.x / 32 + CHAIN_WARPS - turn) % CHAIN_WARPS, pair = threadIdx.x % FINISH_LANES,
        part = threadIdx.x % 32 / FINISH_LANES;
    if (t >= a.n_tokens)
        return;
    bool is_up = p.gated && pair >= UP;
    int local = tile * share.tile_rows + (is_up ? pair - UP : pair) * 2, row = share.begin + local;
    float2 s = make_float2(0, 0);
    const float *from = partial + (part * WARPS * a.n_tokens + t) * CHAIN_ROWS + pair * 2;
#pragma unroll
    for (int v = 0; v < WARPS; v++) {
        float2 x = *(const float2 *)(from + v * a.n_tokens * CHAIN_ROWS);
        s.x += x.x;
        s.y += x.y;
    }
    s = make_float2(chain_join(s.x), chain_join(s.y));
    if (bias != nullptr && row < share.end) {
        const float *b = bias + (is_up ? share.end - share.begin : 0) + local;
        s.x += b[0];
        s.y += b[1];
    }
    if (p.output == OUTPUT_ACTIVATED) { /* of two lanes each has one of the pair */
        float x = rounded<T>(part % 2 == 0 ? s.x : s.y), up = __shfl_down_sync(0xffffffffu, x, UP);
        x = activation(a.activation, x) * (p.gated ? up : 1.0f);
        float y = __shfl_xor_sync(0xffffffffu, x, FINISH_LANES);
        s = part % 2 == 0 ? make_float2(x, y) : make_float2(y, x);
    }
    if (row < share.end && !is_up)
        chain_result<T>(a, sh, p, t, row, s.x, s.y, part, epoch);
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
    input_units<T> units(a, sh, share, p.cols);
    if (p.input == INPUT_ATTENDED || p.input == INPUT_ACTIVATED) {
        input_plain_any<T>(a, units, p.input == INPUT_ATTENDED ? a.attended : a.activated, epoch);
    } else {
        const void *weight = layer.norm[p.norm], *bias = layer.norm_bias[p.norm];
        uint32_t since = p.x == 1 ? epoch - 1 : epoch; /* what the layer before left is its epoch's */
        if (a.norm == NORM_RMS)
            input_normed_any<T, NORM_RMS>(a, sh, units, a.x[p.x], since, weight, bias);
        else
            input_normed_any<T, NORM_LAYER>(a, sh, units, a.x[p.x], since, weight, bias);
    }
    __syncwarp();
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
    if ((int)threadIdx.x < n_bias) /* seen by all after the tile's barrier */
        bias[threadIdx.x] = to_float(mine);
#pragma unroll 1
    for (int i = threadIdx.x + CHAIN_THREADS; i < n_bias; i += CHAIN_THREADS)
        bias[i] = to_float(chain_bias<T>(p, share, weights, i));
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

/* By all threads of the block: what is the same in every step, into shared memory. */
__device__ static inline void chain_open_tables(const chain_args &a, const chain_shared &sh)
{
    int n_words = (a.n_layers + 1) * (int)(sizeof(chain_layer) / 4);
    for (int i = threadIdx.x; i < n_words; i += CHAIN_THREADS + STREAM_THREADS)
        sh.at<uint32_t>(a.at.layers)[i] = ((const uint32_t *)a.layers)[i];
    if (threadIdx.x <= CHAIN_PRODUCTS)
        sh.share[threadIdx.x] = chain_make_share(a.product[threadIdx.x], (int)blockIdx.x, (int)gridDim.x);
}

/* The step's tokens, and what follows from them. By the threads that chain_sync knows. */
__device__ static inline void chain_open_step(const chain_args &a, const chain_shared &sh)
{
    if ((int)threadIdx.x < a.n_tokens) {
        int *tokens = sh.at<int>(a.at.tokens) + threadIdx.x;
        tokens[0] = a.token[threadIdx.x];
        tokens[a.n_tokens] = a.slot[threadIdx.x];
        tokens[2 * a.n_tokens] = a.pos[threadIdx.x];
    }
    for (int i = threadIdx.x; i < a.n_tokens * a.rope_dims; i += CHAIN_THREADS)
        sh.at<float>(a.at.cos_sin)[i] = a.cos_sin[i];
    chain_sync();
    if (threadIdx.x == 0)
        sh.at<attend_plan>(a.at.attend)->make(a, sh);
    /* In a parallel layer attention runs beside the MLP, whose first product is for those blocks that have none of it. */
    int n_free, number = attend_free(a, sh, &n_free);
    if (threadIdx.x == 1 && a.attention_before == 2 && n_free > 0)
        sh.share[1] = chain_make_share(a.product[1], number, n_free);
    chain_sync();
}

/* All threads of a block meet where its shares depend on the step's tokens: all of them are known from here on. */
__device__ static inline void chain_shares_known(const chain_args &a)
{
    if (a.attention_before == 2)
        asm volatile("bar.sync 2, %0;" ::"n"(CHAIN_THREADS + STREAM_THREADS) : "memory");
}

/* grid: one block a multiprocessor, all of them resident. SLOTS: of the ring. */
template <typename T, int SLOTS>
__global__ void __launch_bounds__(CHAIN_THREADS + STREAM_THREADS, 1)
    persistent_kernel(const __grid_constant__ chain_args a)
{
    extern __shared__ __align__(1024) char shared[]; /* as the boxes of weights demand */
    const chain_shared sh = {shared, (chain_share *)(shared + a.at.shares)};
    weight_ring<SLOTS> ring(a, sh);
    chain_count count = {0, 0};
    if (threadIdx.x == 0)
        ring.open();
    chain_open_tables(a, sh);
    __syncthreads();
    /* Weights are on their way while the kernels before this one end, since nobody writes them; in parallel layers only once
     * the step's tokens are known. */
    if (threadIdx.x >= CHAIN_THREADS) {
        give_registers<STREAM_REGISTERS>();
        chain_shares_known(a);
        if (threadIdx.x == CHAIN_THREADS)
            stream_weights<SLOTS>(a, sh);
        return;
    }
    take_registers<CHAIN_REGISTERS>();
    wait_for_previous();
    uint32_t step = a.step[blockIdx.x], epoch = step * (uint32_t)(a.n_layers + 1);
    chain_open_step(a, sh);
    chain_shares_known(a);
    chain_embed<T>(a, sh, epoch);
    for (int product = 0; product <= a.n_layers * CHAIN_PRODUCTS; product++) {
        int k = chain_index(a, product);
        const chain_layer &layer = sh.at<chain_layer>(a.at.layers)[product / CHAIN_PRODUCTS];
        epoch += product % CHAIN_PRODUCTS == 0;
        if (k == CHAIN_HEAD && a.n_ranks == 1) /* else NCCL may gather the logits */
            let_next_begin();
        if (k == a.attention_before)
            chain_attention<T>(a, sh, layer, epoch);
        chain_step<T>(ring, a, sh, k, layer, count, epoch);
    }
    if (threadIdx.x == 0)
        a.step[blockIdx.x] = step + 1;
}

#endif
