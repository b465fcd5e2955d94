/* kernels/cuda/step/persistent_wide.cuh - the persistent kernel for more tokens than the narrow one
 * (persistent_kernel.cuh) handles well: up to 16, of models with RMSNorm in bf16. Words cost every block a load for
 * every two activations, and a narrow block keeps all activations of a product. Here activations pass between blocks as
 * plain vectors: a block announces its part with the epoch (`ready`), and a reader waits for the epochs of all blocks.
 * Then the tensor memory accelerator loads the vector beside the weights that it meets: a slot of the ring has the same
 * columns of up to WIDE_ROWS rows of weights and of 8 or 16 tokens. Words remain for data that few blocks read:
 * queries, keys and values, parts of sequences, sums over the ranks. No block has a whole vector to normalise. So the
 * residual stream is passed on multiplied by the norm's weights, with the sum of squares of every block's rows, and a
 * product's results are divided by the root of their mean. In f16 the values before normalisation might overflow.
 *
 * With CHAIN_WIDE_CODES the layers' weights are E4M3 with scales of rows, and vectors are f16 times INPUT_HALF_SCALE,
 * in the order of wide_store: columns of a slot's 128 bytes of weights meet two lines of 128 bytes of activations. If
 * the head has 16-bit weights, the last vector is bf16 in plain order. */
#ifndef STEP_PERSISTENT_WIDE_CUH
#define STEP_PERSISTENT_WIDE_CUH

#include "kernels/cuda/step/persistent_kernel.cuh"
#include "kernels/cuda/step/persistent_wide_kernels.h"

#define WIDE_INPUT_WARP (CHAIN_WARPS + 1) /* loads activations; the warp before it loads weights */
#define WIDE_POLLS      (WIDE_BLOCKS / 32)
#define WIDE_POLL_READS 2 /* reads of a word that take as long as one poll of all blocks */
#define WIDE_TEAMS      4 /* of warps that take slots in turn */

/* With the narrow kernel's numbers the copying warps would spill registers, which costs more here than anything else
 * did. */
#define WIDE_STREAM_REGISTERS 64
#define WIDE_CHAIN_REGISTERS  104
static_assert(CHAIN_THREADS * WIDE_CHAIN_REGISTERS + STREAM_THREADS * WIDE_STREAM_REGISTERS <=
                  (CHAIN_THREADS + STREAM_THREADS) * BLOCK_REGISTERS,
              "a warp that requests more registers than are free waits for ever");

/* A slot: weights [pieces][rows][STEP_COLUMNS], gate's before up's, then activations [pieces][8 or 16][STEP_COLUMNS] */
template <int SLOTS>
struct wide_ring : weight_ring<SLOTS> {
    using weight_ring<SLOTS>::weight_ring;

    __device__ void open() const
    {
        for (int i = 0; i < SLOTS; i++)
            barrier_open(this->full + (2 * SLOTS + i) * 8, 1);
        weight_ring<SLOTS>::open();
    }
};

/* Is the product's weights' type that of codes? A constant in kernels without any. */
__device__ static inline bool wide_coded(const chain_product &p)
{
    return CHAIN_WIDE_CODES && p.spans > 1;
}

/* Lines of 128 bytes of a token's activations in a slot. */
__device__ static inline int wide_lines(const chain_product &p)
{
    return wide_coded(p) ? 2 * p.pieces : p.pieces;
}

/* Rows of a box of activations. */
__device__ static inline int wide_box_tokens(const chain_args &a)
{
    return a.n_tokens > 8 ? 16 : 8;
}

/* Announces the block's part of a vector after all its threads are done. */
__device__ static inline void wide_ready(const chain_args &a, int vector, uint32_t epoch)
{
    chain_sync();
    if (threadIdx.x == 0)
        asm volatile("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(a.wide.ready + vector * gridDim.x +
                                                                                    blockIdx.x),
                     "r"(epoch)
                     : "memory");
}

/* One warp waits until all blocks have announced theirs. A block without a part in between is at most n_layers ahead of
 * this one; larger differences are stale, from an earlier wide step, which any number of narrow ones may have
 * followed. */
__device__ static inline void wide_await(const chain_args &a, int vector, uint32_t epoch)
{
    const uint32_t *ready = a.wide.ready + vector * gridDim.x;
    unsigned rounds = 0;
    for (bool again = true; again;) {
        uint32_t at[WIDE_POLLS];
#pragma unroll
        for (int i = 0; i < WIDE_POLLS; i++) {
            at[i] = epoch;
            int block = (int)threadIdx.x % 32 + i * 32;
            if (block < (int)gridDim.x)
                asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(at[i]) : "l"(ready + block) : "memory");
        }
        again = false;
#pragma unroll
        for (int i = 0; i < WIDE_POLLS; i++)
            again |= at[i] - epoch > (uint32_t)a.n_layers;
        again = __any_sync(0xffffffffu, again);
        if ((rounds += WIDE_POLL_READS) >= word_patience.for_own)
            word_give_up<false>(0, epoch);
    }
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    __syncwarp();
}

/* Loads a product's activations into the slots that have its weights. Called by one thread. */
template <int SLOTS>
__device__ static inline void wide_copy_inputs(wide_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                               int k)
{
    int tokens = wide_box_tokens(a), lines = wide_lines(a.product[k]), bytes = lines * tokens * 128;
    const CUtensorMap *map = a.input_maps + (tokens > 8 ? CHAIN_PRODUCTS + 1 : 0) + k;
    copies_see_writes();
    for (int tile = 0; tile < sh.share[k].n_tiles; tile++)
        for (int step = 0; step < sh.share[k].n_steps; step++) {
            barrier_wait(ring.emptied(), ring.round ^ 1);
            barrier_expect(ring.arrived(), bytes);
            box_copy_shared(shared_address(sh.base) + (ring.slot + 1) * RING_SLOT_BYTES - bytes, map, 0, 0,
                            step * lines, ring.arrived());
            ring.advance();
        }
}

/* The same for all products. KEYS: see stream_weights. Called by one warp; epoch: of the embedding. */
template <int SLOTS, int KEYS>
__device__ static inline void wide_inputs(const chain_args &a, const chain_shared &sh, uint32_t epoch)
{
    wide_ring<SLOTS> ring(a, sh);
    for (int product = 0; product <= a.n_layers * CHAIN_PRODUCTS; product++) {
        int k = chain_index(a, product);
        const chain_product &p = a.product[k];
        epoch += product % CHAIN_PRODUCTS == 0;
        if (sh.share[k].n_tiles == 0)
            continue;
        /* Slots of keys and values get no activations. They are passed without a look: once the output's activations
         * are there, this block has read them all, and phases are in step again. */
        for (int n = KEYS > 0 && k == a.attention_before ? key_slots<KEYS>(a, sh, product / CHAIN_PRODUCTS) : 0; n > 0;
             n--)
            ring.advance();
        if (p.input == INPUT_NORMED)
            wide_await(a, p.x, p.x == VECTOR_AFTER_MLP ? epoch - 1 : epoch); /* the first is the preceding layer's
                                                                                output */
        else
            wide_await(a, p.input == INPUT_ATTENDED ? VECTOR_ATTENDED : VECTOR_ACTIVATED, epoch);
        if (threadIdx.x % 32 == 0)
            wide_copy_inputs<SLOTS>(ring, a, sh, k);
        __syncwarp();
    }
}

/* The division of a tile among warps: 16 rows of weights each; the warps of one tile are a team, and teams take slots
 * in turn. If warps are left over, a team has `parts` times as many, which split the halves of a slot's pieces. */
struct wide_tile {
    int height; /* rows of the boxes */
    int n_sixteens, teams, parts, pitch;
    int sixteen, part, team; /* this warp's team; team >= teams: it is idle */

    __device__ wide_tile(const chain_product &p, const chain_share &share, int tile)
    {
        height = chain_tile_rows(share, tile);
        n_sixteens = p.gated ? (height + 7) / 8 : (height + 15) / 16;
        int split = CHAIN_WARPS / n_sixteens, i = (int)threadIdx.x / 32 / n_sixteens;
        teams = min(split, WIDE_TEAMS);
        parts = split / teams;
        pitch = n_sixteens * 16 + 4; /* so that lanes write to different banks */
        sixteen = (int)threadIdx.x / 32 % n_sixteens;
        part = i % parts;
        team = i / parts;
    }
    /* The offset in `partial` of the sums for a token of part `which` of all teams' parts; in a gated tile 8 rows of
     * gate and 8 of up alternate. */
    __device__ int at(int which, int t) const
    {
        return (which * PERSISTENT_MAX_TOKENS + t) * pitch;
    }
};

/* The line of a slot's first piece that this lane reads for its warp's 16 rows. */
__device__ static inline int wide_line(const wide_tile &tile, const chain_product &p)
{
    int lane = threadIdx.x % 32;
    if (p.gated)
        return tile.sixteen * 8 + lane % 8 + (lane & 8 ? tile.height * p.pieces : 0);
    return tile.sixteen * 16 + lane % 16;
}

/* wide_multiply with codes, which it converts to f16. */
template <bool SECOND>
__device__ static inline void wide_multiply_codes(float (&sum)[2][4], const wide_tile &tile, const chain_product &p,
                                                  const char *weights, const char *inputs)
{
    const int TOKENS = SECOND ? 16 : 8;
    int lane = threadIdx.x % 32, line = wide_line(tile, p);
#pragma unroll 1
    for (int i = tile.part; i < 2 * p.pieces; i += tile.parts) {
        int from = line + i / 2 * tile.height, half = i % 2 * 4;
        const char *in = inputs + (i * TOKENS + lane % 8) * 128;
#pragma unroll
        for (int j = 0; j < 2; j++) { /* 32 columns */
            uint32_t w[4], x[2][4];
            tensor_load(w, weights + from * 128 + ((half + 2 * j + lane / 16) ^ from % 8) * 16);
            tensor_load(x[0], in + ((4 * j + lane / 8) ^ lane % 8) * 16);
            if (SECOND)
                tensor_load(x[1], in + 8 * 128 + ((4 * j + lane / 8) ^ lane % 8) * 16);
#pragma unroll
            for (int c = 0; c < 4; c += 2) {
                uint32_t low[2], high[2]; /* of rows 0 to 7 and of 8 to 15 */
                code_pairs<__half, CODES_E4M3>::decode(low, w[c], 0);
                code_pairs<__half, CODES_E4M3>::decode(high, w[c + 1], 0);
#pragma unroll
                for (int h = 0; h < (SECOND ? 2 : 1); h++)
                    tensor_mma<__half>(sum[h], low[0], high[0], low[1], high[1], x[h][c], x[h][c + 1]);
            }
        }
    }
}

/* This warp's part of a slot: 16 rows of weights times tokens 0 to 7 and, SECOND, 8 to 15. Rows beyond the tile's
 * belong to another tile, and so do their sums. */
template <typename T, bool SECOND>
__device__ static inline void wide_multiply(float (&sum)[2][4], const wide_tile &tile, const chain_product &p,
                                            const char *weights, const char *inputs)
{
    const int TOKENS = SECOND ? 16 : 8;
    int lane = threadIdx.x % 32, line = wide_line(tile, p);
#pragma unroll 1
    for (int i = tile.part; i < 2 * p.pieces; i += tile.parts) {
        int from = line + i / 2 * tile.height, half = i % 2 * 4;
        const char *in = inputs + (i / 2 * TOKENS + lane % 8) * 128 + ((half + lane / 8) ^ lane % 8) * 16;
        uint32_t w[2][4], x[2][4];
        tensor_load(x[0], in);
        if (SECOND)
            tensor_load(x[1], in + 8 * 128);
#pragma unroll
        for (int j = 0; j < 2; j++)
            tensor_load(w[j], weights + from * 128 + ((half + 2 * j + lane / 16) ^ from % 8) * 16);
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int h = 0; h < (SECOND ? 2 : 1); h++)
                tensor_mma<T>(sum[h], w[j][0], w[j][1], w[j][2], w[j][3], x[h][2 * j], x[h][2 * j + 1]);
    }
}

/* One tile's products, all steps, to the warp's part of `partial`. A warp sees only its own slots: before the parity of
 * a phase tells it that the weights have arrived, those of the previous round must have been read. */
template <typename T, bool SECOND, int SLOTS>
__device__ static inline void wide_products(wide_ring<SLOTS> &ring, const chain_shared &sh, const wide_tile &tile,
                                            const chain_product &p, int n_steps, float *partial)
{
    static_assert(WIDE_TEAMS <= SLOTS,
                  "a slot's round before the last is over when this warp has read its own before it");
    const int INPUT_BYTES = wide_lines(p) * (SECOND ? 16 : 8) * 128;
    bool works = tile.team < tile.teams;
    int arrivals = tile.sixteen + tile.part == 0 ? CHAIN_WARPS + 1 - tile.n_sixteens * tile.parts : 1, turn = 0;
    float sum[2][4] = {};
    for (int step = 0; step < n_steps; step++) {
        if (turn == tile.team) {
            const char *slot = sh.base + ring.slot * RING_SLOT_BYTES;
            barrier_wait(ring.emptied(), ring.round ^ 1);
            barrier_wait(ring.filled(), ring.round);
            barrier_wait(ring.arrived(), ring.round);
            if (wide_coded(p))
                wide_multiply_codes<SECOND>(sum, tile, p, slot, slot + RING_SLOT_BYTES - INPUT_BYTES);
            else
                wide_multiply<T, SECOND>(sum, tile, p, slot, slot + RING_SLOT_BYTES - INPUT_BYTES);
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                barrier_arrive(ring.emptied(), arrivals);
        }
        turn = turn + 1 == tile.teams ? 0 : turn + 1;
        ring.advance();
    }
    chain_sync(); /* all have read the sums before */
    int g = threadIdx.x % 32 / 4, p2 = threadIdx.x % 4 * 2, which = tile.team * tile.parts + tile.part;
    if (works)
#pragma unroll
        for (int h = 0; h < (SECOND ? 2 : 1); h++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                partial[tile.at(which, h * 8 + p2 + i % 2) + tile.sixteen * 16 + g + i / 2 * 8] = sum[h][i];
    chain_sync();
}

/* 1 / deviation of the residual stream of this warp's token. */
__device__ static inline float wide_inverse(const chain_args &a, int x)
{
    const float *from = a.wide.squares + (x * PERSISTENT_MAX_TOKENS + threadIdx.x / 32) * WIDE_BLOCKS;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WIDE_BLOCKS; i += 32)
        sum += __ldcg(from + threadIdx.x % 32 + i); /* zeros for nonexistent blocks */
    return rsqrtf(warp_sum(sum) * a.inverse_hidden + a.eps);
}

/* Publishes the sums of one tile; one warp per token. scale: of all sums; scales, bias: float [share], of the rows;
 * NULL: none. */
template <typename T>
__device__ static inline float wide_finish(const chain_args &a, const chain_shared &sh, const chain_product &p,
                                           const chain_share &share, const wide_tile &tile, int begin,
                                           const float *partial, const float *scales, const float *bias, float scale,
                                           uint32_t epoch)
{
    int t = threadIdx.x / 32;
    float squares = 0;
    for (int local = threadIdx.x % 32 * 2; t < a.n_tokens && local < tile.height; local += 64) {
        int at = p.gated ? local / 8 * 16 + local % 8 : local, row = begin + local;
        float2 s = make_float2(0, 0), up = s;
#pragma unroll 1
        for (int v = 0; v < tile.teams * tile.parts; v++) {
            const float *from = partial + tile.at(v, t) + at;
            s.x += from[0];
            s.y += from[1];
            if (p.gated) {
                up.x += from[8];
                up.y += from[9];
            }
        }
        if (row >= share.end)
            continue;
        s = make_float2(s.x * scale, s.y * scale);
        up = make_float2(up.x * scale, up.y * scale);
        if (scales != nullptr) {
            const float *b = scales + row - share.begin, *c = b + share.end - share.begin;
            s = make_float2(s.x * b[0], s.y * b[1]);
            if (p.gated)
                up = make_float2(up.x * c[0], up.y * c[1]);
        }
        if (bias != nullptr) {
            const float *b = bias + row - share.begin, *c = b + share.end - share.begin;
            s = make_float2(s.x + b[0], s.y + b[1]);
            if (p.gated)
                up = make_float2(up.x + c[0], up.y + c[1]);
        }
        if (p.output == OUTPUT_ACTIVATED) {
            s.x = activation(a.activation, rounded<T>(s.x)) * (p.gated ? rounded<T>(up.x) : 1.0f);
            s.y = activation(a.activation, rounded<T>(s.y)) * (p.gated ? rounded<T>(up.y) : 1.0f);
        }
        squares += chain_result<T, true>(a, sh, p, t, row, s.x, s.y, 0, 1, epoch);
    }
    return squares;
}

/* The weights of the norm that comes after a sum, of this block's rows. */
template <typename T>
__device__ static inline void wide_fetch_scale(const chain_args &a, const chain_shared &sh, const void *norm)
{
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    for (int i = threadIdx.x; i < share.end - share.begin; i += CHAIN_THREADS)
        sh.at<float>(a.at.scale)[i] = to_float(((const T *)norm)[share.begin + i]);
}

/* This block's rows of the residual stream are complete. squares: this lane's of its warp's token. */
__device__ static inline void wide_ready_x(const chain_args &a, int x, float squares, uint32_t epoch)
{
    int t = threadIdx.x / 32;
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0 && t < a.n_tokens)
        a.wide.squares[(x * PERSISTENT_MAX_TOKENS + t) * WIDE_BLOCKS + blockIdx.x] = squares;
    wide_ready(a, x, epoch);
}

/* One product of one layer: this block's share of it. layer[1]: the next one. */
template <typename T, int SLOTS>
__device__ static inline void wide_step(wide_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                        int product, const chain_layer *layer, uint32_t epoch)
{
    const int k = chain_index(a, product);
    const chain_product &p = a.product[k];
    const chain_share share = sh.share[k];
    const void *weights = layer->bias[k % CHAIN_PRODUCTS];
    float *bias = weights == nullptr || share.n_tiles == 0 ? nullptr : sh.at<float>(a.at.bias);
    float *scales = !wide_coded(p) || share.n_tiles == 0 ? nullptr : sh.at<float>(a.at.scales);
    float *partial = sh.at<float>(a.at.partial), squares = 0, scale = 1;
    if (scales != nullptr)
        for (int i = threadIdx.x; i < (share.end - share.begin) * (p.gated ? 2 : 1); i += CHAIN_THREADS)
            scales[i] = a.scales[product][chain_row(p, share, i)] / INPUT_HALF_SCALE;
    if (bias != nullptr)
        for (int i = threadIdx.x; i < (share.end - share.begin) * (p.gated ? 2 : 1); i += CHAIN_THREADS)
            bias[i] = to_float(chain_bias<T>(p, share, weights, i)); /* the last product's are no longer read */
    if (p.output == OUTPUT_SUM)
        wide_fetch_scale<T>(a, sh, p.x == VECTOR_AFTER_MLP ? layer[1].norm[0] : layer->norm[1]);
    for (int i = 0; i < share.n_tiles; i++) {
        const wide_tile tile(p, share, i);
        if (a.n_tokens > 8)
            wide_products<T, true>(ring, sh, tile, p, share.n_steps, partial);
        else
            wide_products<T, false>(ring, sh, tile, p, share.n_steps, partial);
        if (i == 0 && p.input == INPUT_NORMED)
            scale = wide_inverse(a, p.x); /* what has been multiplied was handed over, and with it the squares */
        squares += wide_finish<T>(a, sh, p, share, tile, share.begin + i * share.tile_rows, partial, scales, bias,
                                  scale, epoch);
    }
    if (p.output == OUTPUT_SUM) {
        if (a.n_ranks > 1)
            squares = chain_reduce<T, true>(a, sh, p.x, false, epoch);
        wide_ready_x(a, p.x, squares, epoch);
    } else if (p.output == OUTPUT_ACTIVATED) {
        wide_ready(a, VECTOR_ACTIVATED, epoch);
    } else {
        chain_sync(); /* attention has its scratch where the sums are */
    }
}

/* This block's part of a layer's attention; not FULL: keys of heads that fit come through the ring. */
template <typename T, int SLOTS, bool FULL>
__device__ static inline void wide_attention(wide_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                             int layer, uint32_t epoch)
{
    const chain_layer &of = sh.at<chain_layer>(a.at.layers)[layer];
    if constexpr (FULL)
        chain_attention<T, true, false, ATTEND_ANY>(a, sh, of, epoch);
    else if (a.head_dim > KEY_HEAD)
        chain_attention<T, true, false, ATTEND_NUMBERS, 256>(a, sh, of, epoch);
    else
        chain_attention<T, true, false, ATTEND_NUMBERS, 0, attend_ring<SLOTS>>(a, sh, of, epoch, nullptr,
                                                                               {ring, key_spans(a, sh)[layer]});
}

/* See persistent_kernel. CODES: CHAIN_WIDE_CODES */
template <typename T, int SLOTS, bool FULL, bool CODES = CHAIN_WIDE_CODES>
__global__ void __launch_bounds__(CHAIN_THREADS + STREAM_THREADS, 1)
    persistent_wide_kernel(const __grid_constant__ chain_args a)
{
    char *shared = (char *)__cvta_shared_to_generic(WIDE_SHARED_BEGIN);
    const chain_shared sh = {shared, (chain_share *)(shared + a.at.shares)};
    const int KEYS = FULL ? 0 : 2; /* bytes of an element of keys and values in the ring; 0: none are */
    wide_ring<SLOTS> ring(a, sh);
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        ring.open();
        *sh.at<int>(a.at.hold) = 0;
        *stream_requested(a, sh) = 0;
        if (KEYS > 0)
            key_open(a, sh);
    }
    chain_open_tables(a, sh);
    __syncthreads();
    if (warp >= CHAIN_WARPS) {
        give_registers<WIDE_STREAM_REGISTERS>();
        if (threadIdx.x == CHAIN_THREADS)
            stream_weights<SLOTS, true, FORM_NONE, KEYS>(a, sh);
        if (threadIdx.x == (WIDE_INPUT_WARP + 1) * 32)
            stream_ahead<SLOTS, true, FORM_NONE, KEYS>(a, sh);
        if (KEYS > 0 && warp == WIDE_INPUT_WARP + 2)
            key_copy<KEYS, 1>(a, sh, 0);
        if (warp == WIDE_INPUT_WARP) {
            wait_for_previous();
            wide_inputs<SLOTS, KEYS>(a, sh, a.step[blockIdx.x] * (uint32_t)(a.n_layers + 1));
        }
        return;
    }
    take_registers<WIDE_CHAIN_REGISTERS>();
    wait_for_previous();
    uint32_t step = a.step[blockIdx.x], epoch = step * (uint32_t)(a.n_layers + 1);
    const chain_layer *layers = sh.at<chain_layer>(a.at.layers);
    chain_open_step(a, sh);
    if (KEYS > 0)
        key_make_spans<true>(a, sh);
    wide_fetch_scale<T>(a, sh, layers[0].norm[0]);
    chain_sync();
    wide_ready_x(a, VECTOR_AFTER_MLP, chain_embed<T, true>(a, sh, epoch), epoch);
    if (FULL)
        chain_taps<T>(a, sh, 0);
    for (int product = 0; product <= a.n_layers * CHAIN_PRODUCTS; product++) {
        int k = chain_index(a, product);
        const chain_layer *layer = layers + product / CHAIN_PRODUCTS;
        epoch += product % CHAIN_PRODUCTS == 0;
        if (k == CHAIN_HEAD && a.n_ranks == 1) /* else NCCL may gather the logits */
            let_next_begin();
        if (CHAIN_WIDE_CODES && product == a.n_layers * CHAIN_PRODUCTS - 1 && threadIdx.x == 0)
            *sh.at<int>(a.at.hold) = a.product[CHAIN_HEAD].spans == 1;
        if (k == a.attention_before) {
            wide_attention<T, SLOTS, FULL>(ring, a, sh, product / CHAIN_PRODUCTS, epoch);
            wide_ready(a, VECTOR_ATTENDED, epoch);
        }
        wide_step<T>(ring, a, sh, product, layer, epoch);
        if (FULL && k == CHAIN_PRODUCTS - 1)
            chain_taps<T>(a, sh, product / CHAIN_PRODUCTS + 1);
    }
    if (threadIdx.x == 0)
        a.step[blockIdx.x] = step + 1;
}

#endif
