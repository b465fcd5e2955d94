/* kernels/cuda/step/persistent_experts_second.cuh - the second products of a mixture's layer, and their sum over the
 * experts and the common MLP. */
#ifndef STEP_PERSISTENT_EXPERTS_SECOND_CUH
#define STEP_PERSISTENT_EXPERTS_SECOND_CUH

#include "kernels/cuda/step/persistent_experts_code_second.cuh"
#include "kernels/cuda/step/persistent_experts_inputs.cuh"

/* A lane's sums of one of the second products and a token over the warp's columns, of cols: see chain_tile. x: the
 * activations; NULL: the expert is not chosen for the token. */
template <typename T, int SLOTS>
__device__ static inline void expert_multiply(weight_ring<SLOTS> &ring, const chain_shared &sh, const int (&at)[2],
                                              const T *x, int n_steps, int cols, float (&sum)[2][2])
{
    float first[2][4] = {}, second[2][4] = {};
    int column = threadIdx.x / 32 * STEP_COLUMNS;
    for (int step = 0; step < n_steps; step++, column += CHAIN_WARPS * STEP_COLUMNS) {
        const char *weights = sh.base + ring.slot * RING_SLOT_BYTES;
        const bool busy = CHAIN_LONE || column < cols; /* not: it only says that it does not need the slot */
        uint4 in[2] = {}, w[2][2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (x != nullptr && column < cols)
                in[i] = *(const uint4 *)(x + column + i * 32);
        barrier_wait(ring.filled(), ring.round);
        if (busy) {
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    w[r][i] = *(const uint4 *)(weights + (at[r] ^ i * 64));
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    tensor_mma<T>(first[r], in[i].x, in[i].y, in[i].z, in[i].w, w[r][i].x, w[r][i].y);
                    tensor_mma<T>(second[r], in[i].x, in[i].y, in[i].z, in[i].w, w[r][i].z, w[r][i].w);
                }
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            sum[r][i] = first[r][i] + second[r][i + 2];
}

/* Adds the shared MLP's output. */
template <typename T, int SLOTS>
__device__ static inline void expert_add_common(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                                const int (&at)[2], const expert_layer &more, float (&all)[2][2])
{
    const expert_common &p = a.common[more.common];
    int lane = threadIdx.x % 32, t = lane / 4;
    bool mine = t < a.n_tokens;
    const T *x = sh.at<T>(a.at.input) + expert_common_at(a, more) + t * expert_pair_pitch(p.in.rows) + lane % 4 * 8;
    float one[2][2], weight = mine ? expert_common_weight(a, sh, more.gate, t) : 0.0f;
    expert_multiply<T>(ring, sh, at, mine ? x : nullptr, p.out_steps, p.in.rows, one);
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int k = 0; k < 2; k++)
            all[r][k] = fmaf(weight, one[r][k], all[r][k]);
}

/* One tile of the sum over the experts, n rows. biases: their sums, [n_tokens][x_rows] from the tile's first row on;
 * NULL: there are none. */
template <typename T, bool FULL, int SLOTS>
__device__ static inline void expert_tile(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh, int n,
                                          const expert_layer &more, const float *biases, uint32_t layer, float *partial)
{
    const expert_choice *c = expert_choice_of(a, sh);
    const bool handed = expert_handed<FORM_NONE, FULL>(a);
    int lane = threadIdx.x % 32, t = lane / 4, row = weight_row(t);
    const int at[2] = {weight_at(n, row), weight_at(n, row + 8)};
    float all[2][2] = {}, one[2][2];
    if (biases != nullptr && t < a.n_tokens && t == (int)threadIdx.x / 32)
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                int mine = r * CHAIN_OCTET + weight_row(lane % 4 * 2 + k);
                all[r][k] = mine < n ? biases[t * a.at.x_rows + mine] : 0.0f;
            }
    int there = 0; /* experts whose inputs are there */
    for (int i = 0; i < c->n; i++) {
        int p = choice_pair(a, c)[i * NARROW_TOKENS + t];
        if (handed && i >= there)
            there = expert_await_handed(c, layer, i);
        float share = p >= 0 ? choice_share(a, c)[p] : 0.0f;
        expert_multiply<T>(ring, sh, at, p >= 0 ? sh.at<T>(a.at.input) + p * a.pair_pitch + lane % 4 * 8 : nullptr,
                           sh.share[3].n_steps, a.product[3].cols, one);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (p >= 0)
                    all[r][k] = fmaf(share, one[r][k], all[r][k]);
    }
    if (handed && there < 2 * EXPERT_MAX)
        expert_await_handed(c, layer, 2 * EXPERT_MAX - 1);
    if (FULL && more.common >= 0)
        expert_add_common<T>(ring, a, sh, at, more, all);
    float *to = partial + ((int)threadIdx.x / 32 * a.n_tokens + t) * CHAIN_ROWS;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int k = 0; k < 2; k++)
            if (t < a.n_tokens)
                to[r * CHAIN_OCTET + weight_row(lane % 4 * 2 + k)] = all[r][k];
}

/* Adds up a tile of the second products from all warps' parts of `partial`. */
template <typename T, chain_form FORM>
__device__ static inline void expert_finish_second(const expert_args &a, const chain_shared &sh, int tile,
                                                   const chain_count &count, const float *partial, uint32_t epoch)
{
    chain_sync();
    chain_finish_tile<T>(a, sh, a.product[3], sh.share[3], tile, expert_finisher<FORM>(a, count, a.product[3].cols),
                         partial, nullptr, nullptr, epoch);
}

/* All tiles of the second products, of quantised weights. */
template <typename T, int SLOTS, chain_form FORM>
__device__ static inline void expert_second_codes(weight_ring<SLOTS> &ring, const expert_args &a,
                                                  const chain_shared &sh, const float *biases, chain_count &count,
                                                  uint32_t epoch)
{
    const chain_share &share = sh.share[3];
    code_pairs_at pairs = {0, 0, 0};
    for (int tile = 0; tile < share.n_tiles; tile += a.codes.tiles) {
        float all[SECOND_TILES][4] = {};
        int n[SECOND_TILES] = {}, n_tiles = min(a.codes.tiles, share.n_tiles - tile);
#pragma unroll
        for (int k = 0; k < SECOND_TILES; k++)
            if (k < n_tiles) {
                n[k] = chain_tile_rows(share, tile + k);
                if (biases != nullptr)
                    expert_add_biases(a, biases + (tile + k) * share.tile_rows, n[k], all[k]);
            }
        expert_code_second<T, FORM>(ring, a, sh, n, share.begin + tile * share.tile_rows, epoch, pairs, all);
#pragma unroll
        for (int k = 0; k < SECOND_TILES; k++)
            if (k < n_tiles) {
                float *partial = expert_partial(a, sh, count);
                expert_keep_codes<FORM>(a, all[k], 1, partial);
                expert_finish_second<T, FORM>(a, sh, tile + k, count, partial, epoch);
                count.tiles++;
            }
    }
}

/* The same for 16-bit weights. */
template <typename T, int SLOTS, bool FULL>
__device__ static inline void expert_second_plain(weight_ring<SLOTS> &ring, const expert_args &a,
                                                  const chain_shared &sh, const float *biases, const expert_layer &more,
                                                  chain_count &count, uint32_t epoch)
{
    const chain_share &share = sh.share[3];
    expert_second_inputs<T, FULL>(a, sh, more, epoch);
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        float *partial = expert_partial(a, sh, count);
        expert_tile<T, FULL>(ring, a, sh, chain_tile_rows(share, tile), more,
                             biases != nullptr ? biases + tile * share.tile_rows : nullptr, count.layers, partial);
        expert_finish_second<T, FORM_NONE>(a, sh, tile, count, partial, epoch);
    }
}

template <typename T, int SLOTS, chain_form FORM, bool FULL>
__device__ static inline void expert_second(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                            const chain_layer &layer, const expert_layer &more, chain_count &count,
                                            uint32_t epoch)
{
    const float *biases = layer.bias[3] != nullptr ? sh.at<float>(a.at.kept) : nullptr;
    if constexpr (FORM != FORM_NONE)
        expert_second_codes<T, SLOTS, FORM>(ring, a, sh, biases, count, epoch);
    else
        expert_second_plain<T, SLOTS, FULL>(ring, a, sh, biases, more, count, epoch);
    if (a.n_ranks > 1)
        chain_sum_ranks<T>(a, sh, a.product[3].x, epoch);
}

#endif
