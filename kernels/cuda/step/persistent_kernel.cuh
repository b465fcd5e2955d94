/* kernels/cuda/step/persistent_kernel.cuh - the persistent kernel: one block per multiprocessor works through all
 * products of a decode step. This is the narrow one, for few tokens (persistent_wide.cuh: for more). See
 * persistent_chain.cuh for the idea, the other persistent_*.cuh for the parts. */
#ifndef STEP_PERSISTENT_KERNEL_CUH
#define STEP_PERSISTENT_KERNEL_CUH

#include "kernels/cuda/step/persistent_attention.cuh"
#include "kernels/cuda/step/persistent_outputs.cuh"
#include "kernels/cuda/step/persistent_results.cuh"
#include "kernels/cuda/step/persistent_stream.cuh"

#define FINISH_LANES 8                   /* one pair of rows each: all of a tile */
#define FINISH_PARTS (32 / FINISH_LANES) /* of the warps' sums; afterwards the lanes of a pair have the same total */

/* The sum over the lanes of equal `pair`, returned to all of them. */
__device__ static inline float chain_join(float x)
{
#pragma unroll
    for (int d = FINISH_LANES; d < 32; d *= 2)
        x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Adds up the sums of one tile by WARPS neighbouring warps, and the bias; one of them per token, in turn: `turn` is the
 * first one. Each lane adds the sums of a part of the warps in one pair of rows.
 * partial: [WARPS][n_tokens][CHAIN_ROWS] */
template <typename T, int WARPS = CHAIN_WARPS>
__device__ static inline void chain_finish_tile(const chain_args &a, const chain_shared &sh, const chain_product &p,
                                                const chain_share &share, int tile, int turn, const float *partial,
                                                const float *bias, const float *scales, uint32_t epoch)
{
    const int OF_PART = WARPS / FINISH_PARTS, UP = CHAIN_OCTET / 2; /* a gated tile's second half */
    int t = (threadIdx.x / 32 + WARPS - turn) % WARPS, pair = threadIdx.x % FINISH_LANES,
        part = threadIdx.x % 32 / FINISH_LANES;
    if (t >= a.n_tokens)
        return;
    bool is_up = p.gated && pair >= UP;
    int local = tile * share.tile_rows + (is_up ? pair - UP : pair) * 2, row = share.begin + local;
    float2 s = make_float2(0, 0);
    const float *from = partial + (part * OF_PART * a.n_tokens + t) * CHAIN_ROWS + pair * 2;
#pragma unroll
    for (int v = 0; v < OF_PART; v++) {
        float2 x = *(const float2 *)(from + v * a.n_tokens * CHAIN_ROWS);
        s.x += x.x;
        s.y += x.y;
    }
    s = make_float2(chain_join(s.x), chain_join(s.y));
    if (scales != nullptr && row < share.end) {
        const float *scale = scales + (is_up ? share.end - share.begin : 0) + local;
        s.x *= scale[0];
        s.y *= scale[1];
    }
    if (bias != nullptr && row < share.end) {
        const float *b = bias + (is_up ? share.end - share.begin : 0) + local;
        s.x += b[0];
        s.y += b[1];
    }
    if (p.output == OUTPUT_ACTIVATED) { /* each of two lanes has one of the pair */
        float x = rounded<T>(part % 2 == 0 ? s.x : s.y), up = __shfl_down_sync(0xffffffffu, x, UP);
        x = activation(a.activation, x) * (p.gated ? up : 1.0f);
        float y = __shfl_xor_sync(0xffffffffu, x, FINISH_LANES);
        s = part % 2 == 0 ? make_float2(x, y) : make_float2(y, x);
    }
    if (row < share.end && !is_up)
        chain_result<T, false>(a, sh, p, t, row, s.x, s.y, part, FINISH_PARTS, epoch);
}

/* The row of weights of element i of a block's share: in a gated product gate's rows come first, then up's. */
__device__ static inline int chain_row(const chain_product &p, const chain_share &share, int i)
{
    int n = share.end - share.begin;
    return i < n ? share.begin + i : p.rows + share.begin + i - n;
}

/* An unconverted element of a bias: a conversion to float here would wait for the load. */
template <typename T>
__device__ static inline T chain_bias(const chain_product &p, const chain_share &share, const void *bias, int i)
{
    return ((const T *)bias)[chain_row(p, share, i)];
}

/* Copies the scales of the block's rows to shared memory, as the bias is copied: before the wait for the input. */
template <bool CODES>
struct chain_scales {
    const float *from;
    float *to, mine;
    int n;

    __device__ chain_scales(const chain_args &a, const chain_shared &sh, const chain_product &p,
                            const chain_share &share, int product, int buffer)
        : from(CODES && a.scales != nullptr ? a.scales[product] : nullptr),
          to(sh.at<float>(a.at.scales) + buffer * a.at.bias_rows), mine(0),
          n(from == nullptr ? 0 : (share.end - share.begin) * (p.gated ? 2 : 1))
    {
        if (CODES && (int)threadIdx.x < n)
            mine = from[chain_row(p, share, threadIdx.x)];
    }
    __device__ void store(const chain_product &p, const chain_share &share) const
    {
        if (CODES && (int)threadIdx.x < n)
            to[threadIdx.x] = mine;
#pragma unroll 1
        for (int i = threadIdx.x + CHAIN_THREADS; CODES && i < n; i += CHAIN_THREADS)
            to[i] = from[chain_row(p, share, i)];
    }
    __device__ const float *kept() const
    {
        return CODES && n > 0 ? to : nullptr;
    }
};

/* OTHER: the kind of norm that the kernel supports besides NORM_RMS; with CHAIN_LONE the only one. */
template <typename T, chain_form FORM, norm_kind OTHER>
__device__ static inline void chain_input(const chain_args &a, const chain_shared &sh, const chain_product &p,
                                          const chain_share &share, const chain_layer &layer, uint32_t epoch)
{
    const bool FEW = FORM == FORM_NONE && OTHER == NORM_RMS_ONCE; /* other kernels are spared the code */
    input_units<T, FORM> units(a, sh, share, p.cols);
    if (p.input == INPUT_ATTENDED || p.input == INPUT_ACTIVATED) {
        input_plain_any<T>(a, units, p.input == INPUT_ATTENDED ? a.attended : a.activated, epoch);
    } else {
        const void *weight = layer.norm[p.norm], *bias = layer.norm_bias[p.norm];
        uint32_t since = p.x == 1 ? epoch - 1 : epoch; /* vectors of the preceding layer have its epoch */
        if constexpr (CHAIN_OUTPUTS)
            input_added_any<T>(a, sh, units, a.x[p.x], since, weight, layer.out_norm[p.norm]);
        else if (!CHAIN_LONE && a.norm == NORM_RMS)
            input_normed_any<T, NORM_RMS, FEW>(a, sh, units, a.x[p.x], since, weight, bias);
        else
            input_normed_any<T, OTHER, FEW>(a, sh, units, a.x[p.x], since, weight, bias);
    }
    __syncwarp();
}

/* The sum over the ranks. Until the first token's words arrive, weights are prefetched to L2 only: the other ranks'
 * words would queue behind them. */
template <typename T>
__device__ static inline void chain_sum_ranks(const chain_args &a, const chain_shared &sh, int x, uint32_t epoch)
{
    volatile int *hold = sh.at<volatile int>(a.at.hold);
    if (threadIdx.x == 0)
        *hold = 1;
    chain_reduce<T, false>(a, sh, x, false, epoch);
    if (threadIdx.x == 0)
        *hold = 0;
}

/* Numbers of tiles (for the choice of buffers and of the warps that finish a tile) and products done by the block */
struct chain_count {
    int tiles, products, firsts; /* firsts: see expert_first_apart */
    uint32_t layers;             /* see expert_hand_in */
};

/* In persistent_code_tile.cuh, for kernels with quantised weights. */
template <typename T, chain_form FORM, int SLOTS>
__device__ __forceinline__ static void code_tile(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                                 const chain_share &share, int n, bool gated, float *partial);
template <typename T, chain_form FORM, int SLOTS>
__device__ __forceinline__ static void
code_team_tiles(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh, const chain_product &p,
                const chain_share &share, chain_count &count, const float *bias, const float *scales, uint32_t epoch);

/* One tile's products of n rows of weights. */
template <typename T, chain_form FORM, int SLOTS>
__device__ __forceinline__ static void chain_tile_any(weight_ring<SLOTS> &ring, const chain_args &a,
                                                      const chain_shared &sh, const chain_product &p,
                                                      const chain_share &share, int n, float *partial)
{
    if constexpr (FORM != FORM_NONE)
        if (p.spans > 1)
            return code_tile<T, FORM>(ring, a, sh, share, n, p.gated, partial);
    chain_tile<T>(ring, a, sh, share.n_steps, n, p.gated, partial);
}

/* One product of one layer: this block's share of it. product: counted through all layers. TEAMS: tiles of quantised
 * weights are for teams of warps in turn, see code_team_tiles. */
template <typename T, int SLOTS, chain_form FORM, norm_kind OTHER = NORM_LAYER, bool TEAMS = false>
__device__ __forceinline__ static void chain_step(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                                  int product, int k, const chain_layer &layer, chain_count &count,
                                                  uint32_t epoch)
{
    const chain_product &p = a.product[k];
    const chain_share share = sh.share[k];
    if (share.n_tiles == 0) {
        if (CHAIN_OUTPUTS && p.input == INPUT_NORMED) { /* adds to its stream as all blocks do */
            chain_input<T, FORM, OTHER>(a, sh, p, share, layer, epoch);
            chain_sync();
        }
        return;
    }
    const void *weights = layer.bias[k % CHAIN_PRODUCTS];
    int n_bias = weights == nullptr ? 0 : (share.end - share.begin) * (p.gated ? 2 : 1);
    const chain_scales<FORM != FORM_NONE> scales(a, sh, p, share, product, count.products % 2);
    float *bias = sh.at<float>(a.at.bias) + count.products++ % 2 * a.at.bias_rows;
    T mine = {};
    if ((int)threadIdx.x < n_bias)
        mine = chain_bias<T>(p, share, weights, threadIdx.x);
    /* A block without a share of the previous product has not read its input, but must wait for it, too, before it
     * produces any result of this layer. */
    if (p.input != INPUT_SAME || sh.share[k - 1].n_tiles == 0)
        chain_input<T, FORM, OTHER>(a, sh, p, share, layer, epoch);
    if ((int)threadIdx.x < n_bias) /* visible to all after the tile's barrier */
        bias[threadIdx.x] = to_float(mine);
#pragma unroll 1
    for (int i = threadIdx.x + CHAIN_THREADS; i < n_bias; i += CHAIN_THREADS)
        bias[i] = to_float(chain_bias<T>(p, share, weights, i));
    scales.store(p, share);
    bool in_teams = false;
    if constexpr (TEAMS) {
        in_teams = p.spans > 1;
        if (in_teams)
            code_team_tiles<T, FORM>(ring, a, sh, p, share, count, n_bias > 0 ? bias : nullptr, scales.kept(), epoch);
    }
    for (int tile = 0; !in_teams && tile < share.n_tiles; tile++, count.tiles++) {
        int size = CHAIN_WARPS * a.n_tokens * CHAIN_ROWS;
        float *partial = sh.at<float>(a.at.partial) + count.tiles % 2 * size;
        chain_tile_any<T, FORM>(ring, a, sh, p, share, chain_tile_rows(share, tile), partial);
        chain_sync(); /* one barrier per tile suffices: the next tile's sums go to the other buffer */
        chain_finish_tile<T>(a, sh, p, share, tile, count.tiles % CHAIN_WARPS, partial, n_bias > 0 ? bias : nullptr,
                             scales.kept(), epoch);
    }
    if (p.output == OUTPUT_SUM && a.n_ranks > 1)
        chain_sum_ranks<T>(a, sh, p.x, epoch);
}

/* Loads what is constant over all steps into shared memory. Called by all threads of the block. */
__device__ static inline void chain_open_tables(const chain_args &a, const chain_shared &sh)
{
    int n_words = (a.n_layers + 1) * (int)(sizeof(chain_layer) / 4);
    for (int i = threadIdx.x; i < n_words; i += CHAIN_THREADS + STREAM_THREADS)
        sh.at<uint32_t>(a.at.layers)[i] = ((const uint32_t *)a.layers)[i];
    if (threadIdx.x <= CHAIN_PRODUCTS)
        sh.share[threadIdx.x] = chain_make_share(a.product[threadIdx.x], (int)blockIdx.x, (int)gridDim.x);
}

/* Loads the step's tokens, and computes what depends on them. Called by the threads that chain_sync synchronises. */
__device__ static inline void chain_open_step(const chain_args &a, const chain_shared &sh)
{
    if ((int)threadIdx.x < a.n_tokens) {
        int *tokens = sh.at<int>(a.at.tokens) + threadIdx.x;
        tokens[0] = a.token[threadIdx.x];
        tokens[a.n_tokens] = a.slot[threadIdx.x];
        tokens[2 * a.n_tokens] = a.pos[threadIdx.x];
    }
    const int n_angles = a.n_tokens * a.rope_dims;
    for (int i = threadIdx.x; i < n_angles; i += CHAIN_THREADS)
        sh.at<float>(a.at.cos_sin)[i] = a.cos_sin[i];
    for (int i = threadIdx.x; CHAIN_OUTPUTS && a.window_cos_sin != nullptr && i < n_angles; i += CHAIN_THREADS)
        sh.at<float>(a.at.cos_sin)[n_angles + i] = a.window_cos_sin[i];
    if (CHAIN_OUTPUTS)
        stream_clear(a, sh);
    chain_sync();
    if (threadIdx.x == 0)
        sh.at<attend_shares>(a.at.attend)->make(a, sh);
    /* In a parallel layer attention runs beside the MLP; blocks without attention do the MLP's first product. */
    int n_free, number = attend_free(a, sh, &n_free);
    if (threadIdx.x == 1 && a.attention_before == 2 && n_free > 0)
        sh.share[1] = chain_make_share(a.product[1], number, n_free);
    chain_sync();
}

/* If a block's shares depend on the step's tokens, the loading warp waits until the computing warps signal that they
 * are known. */
__device__ static inline void chain_tell_shares(const chain_args &a)
{
    if (a.attention_before == 2)
        asm volatile("bar.arrive 2, %0;" ::"n"(CHAIN_THREADS + STREAM_THREADS) : "memory");
}

__device__ static inline void chain_await_shares(const chain_args &a)
{
    if (a.attention_before == 2)
        asm volatile("bar.sync 2, %0;" ::"n"(CHAIN_THREADS + STREAM_THREADS) : "memory");
}

/* Writes this block's rows of a layer's input, which it keeps, to their tap, if the layer has one. */
template <typename T>
__device__ static inline void chain_taps(const chain_args &a, const chain_shared &sh, int layer)
{
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    const int pairs = (share.end - share.begin) / 2;
    for (int i = 0; i < a.taps.n; i++) {
        if (a.taps.layer[i] != layer)
            continue;
        chain_sync(); /* all rows are known */
        for (int k = threadIdx.x; k < a.n_tokens * pairs; k += CHAIN_THREADS) {
            int t = k / pairs, row = k % pairs * 2;
            const float *x = sh.at<float>(a.at.residual) + t * a.at.x_rows + row;
            T *to = (T *)a.taps.to + ((size_t)t * a.taps.n + i) * a.hidden + share.begin + row;
            *(uint32_t *)to = tensor_pack<T>(x[0], x[1]);
        }
    }
}

/* grid: one block per multiprocessor, all resident. SLOTS: of the ring. FORM: of quantised weights. FULL: keys and
 * values are quantised or, with 16-bit weights and without RING, may be; then a sequence may also have several tokens,
 * and there may be taps. The other kernels save the registers and instructions for that. RING, OUTPUTS, ONE:
 * CHAIN_KEYS, CHAIN_OUTPUTS, CHAIN_ONE */
template <typename T, int SLOTS, chain_form FORM, bool FULL, bool RING = CHAIN_KEYS, bool OUTPUTS = CHAIN_OUTPUTS,
          bool ONE = CHAIN_ONE>
__global__ void __launch_bounds__(CHAIN_THREADS + STREAM_THREADS, 1)
    persistent_kernel(const __grid_constant__ chain_args a)
{
    const attend_kind KIND = !FULL ? ATTEND_NUMBERS : FORM == FORM_NONE && !RING ? ATTEND_ANY : ATTEND_CODES;
    const int KEYS = !RING ? 0 : FULL ? 1 : 2; /* bytes of an element of keys and values in the ring; 0: none are */
    extern __shared__ __align__(1024) char shared[]; /* the alignment that the boxes of weights require */
    const chain_shared sh = {shared, (chain_share *)(shared + a.at.shares)};
    weight_ring<SLOTS> ring(a, sh);
    chain_count count = {};
    if (threadIdx.x == 0) {
        ring.open();
        *sh.at<int>(a.at.hold) = 0;
        *stream_requested(a, sh) = 0;
        if (RING)
            key_open(a, sh);
    }
    chain_open_tables(a, sh);
    __syncthreads();
    /* Weights are loaded while the preceding kernels end, since no kernel writes them; in parallel layers only once the
     * step's tokens are known. */
    if (threadIdx.x >= CHAIN_THREADS) {
        give_registers<STREAM_REGISTERS>();
        chain_await_shares(a);
        if (threadIdx.x == CHAIN_THREADS)
            stream_weights<SLOTS, false, FORM, KEYS>(a, sh);
        else if (threadIdx.x == CHAIN_THREADS + 32)
            stream_ahead<SLOTS, false, FORM, KEYS>(a, sh);
        else if (RING && threadIdx.x >= CHAIN_THREADS + 64)
            key_copy<KEYS, STREAM_THREADS / 32 - 2>(a, sh, (int)(threadIdx.x - CHAIN_THREADS) / 32 - 2);
        return;
    }
    take_registers<CHAIN_REGISTERS>();
    wait_for_previous();
    uint32_t step = a.step[blockIdx.x], epoch = step * (uint32_t)(a.n_layers + 1);
    chain_open_step(a, sh);
    chain_tell_shares(a);
    if (RING)
        key_make_spans(a, sh);
    chain_embed<T, false>(a, sh, epoch);
    if (KIND == ATTEND_ANY)
        chain_taps<T>(a, sh, 0);
    for (int product = 0; product <= a.n_layers * CHAIN_PRODUCTS; product++) {
        int k = chain_index(a, product);
        const chain_layer &layer = sh.at<chain_layer>(a.at.layers)[product / CHAIN_PRODUCTS];
        epoch += product % CHAIN_PRODUCTS == 0;
        if (k == CHAIN_HEAD && a.n_ranks == 1) /* else NCCL may gather the logits */
            let_next_begin();
        if constexpr (RING) {
            if (k == a.attention_before)
                chain_attention<T, false, false, KIND, 0, attend_ring<SLOTS>>(
                    a, sh, layer, epoch, nullptr, {ring, key_spans(a, sh)[product / CHAIN_PRODUCTS]});
        } else if (k == a.attention_before) {
            chain_attention<T, false, false, KIND>(a, sh, layer, epoch);
        }
        chain_step<T, SLOTS, FORM, NORM_LAYER, CHAIN_ONE>(ring, a, sh, product, k, layer, count, epoch);
        if (KIND == ATTEND_ANY && k == CHAIN_PRODUCTS - 1)
            chain_taps<T>(a, sh, product / CHAIN_PRODUCTS + 1);
    }
    if (threadIdx.x == 0)
        a.step[blockIdx.x] = step + 1;
}

#endif
