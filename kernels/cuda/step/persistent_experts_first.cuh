/* kernels/cuda/step/persistent_experts_first.cuh - the router's logits and the first products of a mixture's layer: of
 * the chosen experts, in 16 bits or quantised, and of the common MLP. */
#ifndef STEP_PERSISTENT_EXPERTS_FIRST_CUH
#define STEP_PERSISTENT_EXPERTS_FIRST_CUH

#include "kernels/cuda/step/persistent_experts_codes.cuh"
#include "kernels/cuda/step/persistent_experts_results.cuh"

/* Publishes the router's logits to all blocks. */
template <typename T, int SLOTS>
__device__ static inline void expert_router(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                            const expert_layer &more, chain_count &count, uint32_t epoch)
{
    const chain_share share = expert_choice_of(a, sh)->router;
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        float *partial = expert_partial(a, sh, count);
        int t = expert_turn(count.tiles % CHAIN_WARPS), pair = threadIdx.x % FINISH_LANES,
            part = threadIdx.x % 32 / FINISH_LANES;
        int row = share.begin + tile * share.tile_rows + pair * 2;
        const router_biases<T> bias(a, more, row, share.end);
        chain_tile<T>(ring, a, sh, share.n_steps, chain_tile_rows(share, tile), false, partial);
        chain_sync();
        if (t >= a.n_tokens)
            continue;
        float2 s = expert_sums(a, partial, t, pair, part);
        if (part == 0 && row < share.end)
            word_publish2<false>(a.logit_words + t * expert_logits_pitch(a.how.n_experts) + row,
                                 word_float(s.x + to_float(bias.of[0]), epoch),
                                 word_float(s.y + to_float(bias.of[1]), epoch));
    }
}

/* The first product: tiles of results, numbered through the chosen experts. */
template <typename T, int SLOTS>
__device__ static inline void expert_first(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                           const chain_layer &layer, chain_count &count, uint32_t epoch)
{
    const expert_choice *c = expert_choice_of(a, sh);
    const bool turns = expert_in_turns(a);
    for (expert_tiles at = c->first; !at.done(); at.next(a), count.tiles++) {
        float *partial = expert_partial(a, sh, count);
        int t = expert_turn(count.tiles % CHAIN_WARPS);
        uint32_t bias = expert_first_bias<T>(a, c, at, layer.bias[2]);
        chain_tile<T>(ring, a, sh, sh.share[2].n_steps, turns ? 2 * at.n : at.n, !turns, partial);
        chain_sync();
        expert_finish_first<T>(a, c, at, t, partial, bias, epoch);
    }
}

/* The same for quantised weights. */
template <typename T, int SLOTS, chain_form FORM>
__device__ static inline void expert_first_codes(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                                 const chain_layer &layer, chain_count &count, uint32_t epoch)
{
    const expert_choice *c = expert_choice_of(a, sh);
    const int ffn = a.product[2].rows, turns = expert_in_turns(a) ? 2 : 1;
    code_firsts<FORM> codes(a, sh);
    for (expert_tiles at = c->first; !at.done(); at.next(a), count.tiles++) {
        float *partial = expert_partial(a, sh, count);
        int t = expert_turn(expert_finisher<FORM>(a, count, a.product[2].cols)),
            first = choice_which(a, c)[at.i] * ffn * 2 + turns * at.row;
        uint32_t bias = t < a.n_tokens ? expert_first_bias<T>(a, c, at, layer.bias[2]) : 0;
        float sum[1][4] = {};
        codes.multiply(ring, a, sh, turns * at.n, first, turns == 2 ? -1 : first + ffn, sum);
        expert_keep_codes<FORM>(a, sum[0], EXPERT_GAIN<T, FORM>, partial);
        chain_sync();
        expert_finish_first<T>(a, c, at, t, partial, bias, epoch);
    }
}

/* Do two warps without columns hand on the tiles of the experts' first product in turn? With MXFP4 some of the warps
 * may have none; with E4M3 they are those beside the one that requests weights (expert_hand_on), each of which must
 * have a tile in every layer. */
template <chain_form FORM>
__device__ static inline bool expert_apart(const expert_args &a)
{
    if (FORM == FORM_E4M3)
        return a.how.n_chosen * a.product[2].rows / 2 / (int)gridDim.x * 2 > CHAIN_OCTET;
    return CHAIN_WARPS - expert_busy<FORM>(a.product[2].cols) >= 2;
}

/* A warp hands on one tile's results once the barrier `told` says that its sums are complete. */
template <typename T>
__device__ static inline void expert_hand_on_tile(const expert_args &a, const chain_shared &sh, expert_choice *c,
                                                  const expert_tiles &at, int tile, int busy, uint32_t bias,
                                                  uint32_t epoch)
{
    const int place = tile % 2, lane = threadIdx.x % 32;
    const float *partial = sh.at<float>(a.at.partial) + place * CHAIN_WARPS * CHAIN_ROWS;
    barrier_wait(shared_address(&c->told[place]), tile / 2 % 2);
    float2 s = expert_sums(a, partial, 0, lane % FINISH_LANES, lane / FINISH_LANES, busy);
    int p = expert_pair_of(a, c, at, 0);
    __syncwarp();
    if (lane == 0)
        barrier_arrive(shared_address(&c->read[place]));
    if (p >= 0)
        expert_first_results<T>(a, at, p, s, bias, epoch);
}

/* Hands on the tiles of all layers' first products. Called by the warps beside the one that requests weights; two of
 * them take turns. */
template <typename T, chain_form FORM>
__device__ static inline void expert_hand_on(const expert_args &a, const chain_shared &sh)
{
    expert_choice *c = expert_choice_of(a, sh);
    const int mine = (int)threadIdx.x / 32 - CHAIN_WARPS - 1;
    if (mine < 0 || mine > 1 || !expert_apart<FORM>(a))
        return;
    wait_for_previous();
    uint32_t epoch = a.step[blockIdx.x] * (uint32_t)(a.n_layers + 1) + 1;
    int tile = 0;
    for (int layer = 0; layer < a.n_layers; layer++, epoch++) {
        barrier_wait(shared_address(&c->made), layer & 1);
        for (expert_tiles at = c->first; !at.done(); at.next(a), tile++)
            if (tile % 2 == mine)
                expert_hand_on_tile<T>(a, sh, c, at, tile, expert_busy<FORM>(a.product[2].cols),
                                       expert_first_bias<T>(a, c, at, sh.at<chain_layer>(a.at.layers)[layer].bias[2]),
                                       epoch);
    }
}

/* The first product with expert_apart, for one token: no warp waits for all others at a tile's end. `told` says that a
 * tile's sums are complete, `read` that their place is free again. */
template <typename T, int SLOTS, chain_form FORM>
__device__ static inline void expert_first_apart(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                                 const chain_layer &layer, chain_count &count, uint32_t epoch)
{
    expert_choice *c = expert_choice_of(a, sh);
    const int ffn = a.product[2].rows, turns = expert_in_turns(a) ? 2 : 1, busy = expert_busy<FORM>(a.product[2].cols),
              warp = threadIdx.x / 32;
    code_firsts<FORM> codes(a, sh);
    for (expert_tiles at = c->first; !at.done(); at.next(a), count.firsts++) {
        const int place = count.firsts % 2, round = count.firsts / 2 % 2;
        float *partial = sh.at<float>(a.at.partial) + place * CHAIN_WARPS * CHAIN_ROWS;
        int first = choice_which(a, c)[at.i] * ffn * 2 + turns * at.row;
        bool mine = FORM == FORM_E2M1 && warp == busy + place;
        uint32_t bias = mine ? expert_first_bias<T>(a, c, at, layer.bias[2]) : 0;
        float sum[1][4] = {};
        codes.multiply(ring, a, sh, turns * at.n, first, turns == 2 ? -1 : first + ffn, sum);
        if (warp < busy) {
            barrier_wait(shared_address(&c->read[place]), round ^ 1);
            expert_keep_codes<FORM>(a, sum[0], EXPERT_GAIN<T, FORM>, partial);
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                barrier_arrive(shared_address(&c->told[place]));
        } else if (mine) {
            expert_hand_on_tile<T>(a, sh, c, at, count.firsts, busy, bias, epoch);
        }
    }
    for (int back = 1; back <= min(count.firsts, 2); back++) { /* then all have also read the input */
        int tile = count.firsts - back;
        barrier_wait(shared_address(&c->read[tile % 2]), tile / 2 % 2);
    }
}

template <typename T, int SLOTS, chain_form FORM>
__device__ static inline void expert_first_any(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                               const chain_layer &layer, chain_count &count, uint32_t epoch)
{
    if constexpr (CHAIN_LONE && FORM != FORM_NONE) {
        if (expert_apart<FORM>(a)) {
            expert_first_apart<T, SLOTS, FORM>(ring, a, sh, layer, count, epoch);
            return;
        }
    }
    if constexpr (FORM != FORM_NONE)
        expert_first_codes<T, SLOTS, FORM>(ring, a, sh, layer, count, epoch);
    else
        expert_first<T, SLOTS>(ring, a, sh, layer, count, epoch);
}

/* The common MLP's first product. */
template <typename T, int SLOTS>
__device__ static inline void expert_common_first(weight_ring<SLOTS> &ring, const expert_args &a,
                                                  const chain_shared &sh, int which, chain_count &count, uint32_t epoch)
{
    const chain_share share = expert_choice_of(a, sh)->common[which];
    int pair = threadIdx.x % FINISH_LANES, part = threadIdx.x % 32 / FINISH_LANES;
    if (share.n_tiles == 0) /* as in expert_first */
        chain_sync();
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        float *partial = expert_partial(a, sh, count);
        int n = chain_tile_rows(share, tile), t = expert_turn(count.tiles % CHAIN_WARPS),
            row = share.begin + tile * share.tile_rows;
        chain_tile<T>(ring, a, sh, share.n_steps, n, true, partial);
        chain_sync();
        if (t < a.n_tokens)
            expert_activate<T>(a, expert_sums(a, partial, t, pair, part), min(n, share.end - row),
                               a.common_words + ((size_t)t * a.common[which].in.rows + row) / 2, epoch);
    }
}

#endif
