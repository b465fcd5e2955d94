/* kernels/cuda/step/persistent_experts.cuh - the persistent kernel for models with a mixture of experts, otherwise as
 * the narrow one (persistent_kernel.cuh). The router is a product like others, whose logits go to all blocks; each
 * makes the choice (persistent_choice.cuh). Results of the first product are numbered through the chosen experts, in
 * order, and distributed over the blocks; in the second one a block has the same rows of every chosen expert, and sums
 * up their outputs: one matrix whose columns are those of all of them. So an expert's weights are read once, however
 * many tokens have it. */
#ifndef STEP_PERSISTENT_EXPERTS_CUH
#define STEP_PERSISTENT_EXPERTS_CUH

#include "kernels/cuda/step/persistent_experts_codes.cuh"
#include "kernels/cuda/step/persistent_experts_results.cuh"
#include "kernels/cuda/step/persistent_experts_route.cuh"
#include "kernels/cuda/step/persistent_experts_stream.cuh"
#include "kernels/cuda/step/persistent_latent.cuh"

/* As in the wide kernel: the loading thread needs more registers than the narrow one's. */
#define EXPERT_STREAM_REGISTERS 64
#define EXPERT_CHAIN_REGISTERS  104
static_assert(CHAIN_THREADS * EXPERT_CHAIN_REGISTERS + STREAM_THREADS * EXPERT_STREAM_REGISTERS <=
                  (CHAIN_THREADS + STREAM_THREADS) * BLOCK_REGISTERS,
              "a warp that requests more registers than are free waits for ever");

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

#define PAIR_UNITS_AT_ONCE 8 /* words that a lane waits for */
#define HAND_UNITS         6 /* the same in expert_hand_in */

/* Rows of activations: [n][cols] as words, [n][pitch] in shared memory. */
struct activation_rows {
    const unsigned long long *words;
    int n, cols, n_steps, pitch;
};

/* A lane's unit of them: half a warp has the warp's columns of one step and row, a lane 4 of them. */
struct activation_unit {
    int from, to; /* words, elements; from < 0: nothing */

    /* wanted(row) */
    template <typename WANTED>
    __device__ void find(const activation_rows &rows, int unit, WANTED wanted)
    {
        int row = rows.n_steps == 1 ? unit : unit / rows.n_steps;
        int column = (unit - row * rows.n_steps) * (CHAIN_WARPS * STEP_COLUMNS) + (int)threadIdx.x / 32 * STEP_COLUMNS +
                     (int)threadIdx.x % 16 * UNIT_COLUMNS;
        from = row < rows.n && column < rows.cols && wanted(row) ? (row * rows.cols + column) / 2 : -1;
        to = row * rows.pitch + column / 8 * 8 + column / 4 % 2 * 2;
    }
};

/* Stores the rows' activations at this warp's columns, from words to shared memory, in the order of input_units::store
 * for 8 columns. */
template <typename T, typename WANTED>
__device__ static inline void expert_inputs(const activation_rows &rows, T *place, uint32_t epoch, WANTED wanted)
{
    int n = rows.n * rows.n_steps;
#pragma unroll 1
    for (int begin = 0; begin < n; begin += 2 * PAIR_UNITS_AT_ONCE) {
        activation_unit unit[PAIR_UNITS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < PAIR_UNITS_AT_ONCE; i++)
            unit[i].find(rows, begin + 2 * i + (int)threadIdx.x % 32 / 16, wanted);
        int lane0 = __shfl_sync(0xffffffffu, unit[0].from, 0);
        ulonglong2 v[PAIR_UNITS_AT_ONCE];
        word_await(
            v, [&](int i) { return unit[i].from >= 0; }, [&](int i) { return rows.words + unit[i].from; }, epoch,
            lane0 >= 0 ? rows.words + lane0 : nullptr);
#pragma unroll
        for (int i = 0; i < PAIR_UNITS_AT_ONCE; i++)
            if (unit[i].from >= 0) {
                uint32_t *to = (uint32_t *)(place + unit[i].to);
                to[0] = (uint32_t)v[i].x;
                to[2] = (uint32_t)v[i].y;
            }
    }
    __syncwarp();
}

/* The value of expert_choice.handed once a warp has handed in the (n - 1)-th of a layer's experts, counted through all
 * layers. */
__device__ static inline uint32_t expert_mark(uint32_t layer, int n)
{
    return layer * (2 * EXPERT_MAX) + n;
}

/* A warp stores a pair's activations, [pairs][pair_pitch]. */
template <typename T>
__device__ static inline void expert_hand_pair(const expert_args &a, T *place, int p, uint32_t epoch)
{
    const int cols = a.product[3].cols, COLUMNS = 32 * UNIT_COLUMNS;
    const unsigned long long *words = a.pairs + (size_t)p * cols / 2;
    int column = (int)threadIdx.x % 32 * UNIT_COLUMNS;
#pragma unroll 1
    for (int end = 0; end < cols; end += HAND_UNITS * COLUMNS, column += HAND_UNITS * COLUMNS) {
        ulonglong2 v[HAND_UNITS];
        word_await(
            v, [&](int i) { return column + i * COLUMNS < cols; },
            [&](int i) { return words + (column + i * COLUMNS) / 2; }, epoch, words + end / 2);
#pragma unroll
        for (int i = 0; i < HAND_UNITS; i++) {
            int to = column + i * COLUMNS;
            uint32_t *pairs = (uint32_t *)(place + p * a.pair_pitch + to / 8 * 8 + to / 4 % 2 * 2);
            if (to < cols) { /* in the order of input_units::store */
                pairs[0] = (uint32_t)v[i].x;
                pairs[2] = (uint32_t)v[i].y;
            }
        }
    }
}

/* Hands in the inputs of all layers' second products. Each warp has every HAND_WARPS-th of the
 * chosen experts. */
template <typename T>
__device__ static inline void expert_hand_in(const expert_args &a, const chain_shared &sh)
{
    expert_choice *c = expert_choice_of(a, sh);
    const int warp = (int)threadIdx.x / 32 - CHAIN_WARPS - 1, lane = threadIdx.x % 32;
    const uint32_t firsts = shared_address(&c->firsts), handed = shared_address(&c->handed[warp]);
    wait_for_previous();
    uint32_t epoch = a.step[blockIdx.x] * (uint32_t)(a.n_layers + 1) + 1;
    for (uint32_t layer = 0; layer < (uint32_t)a.n_layers; layer++, epoch++) {
        barrier_wait(firsts, layer & 1);
        for (int i = warp; i < c->n; i += HAND_WARPS) {
            int mine = lane < NARROW_TOKENS ? choice_pair(a, c)[i * NARROW_TOKENS + lane] : -1;
            for (unsigned pairs = __ballot_sync(0xffffffffu, mine >= 0); pairs != 0; pairs &= pairs - 1)
                expert_hand_pair<T>(a, sh.at<T>(a.at.input), __shfl_sync(0xffffffffu, mine, __ffs((int)pairs) - 1),
                                    epoch);
            __syncwarp();
            if (lane == 0)
                shared_release(handed, expert_mark(layer, i + 1));
        }
        __syncwarp();
        if (lane == 0)
            shared_release(handed, expert_mark(layer + 1, 0));
    }
}

/* Waits for the inputs of the layer's i-th expert. Returns the number of the first experts whose inputs are there; at
 * least 2 EXPERT_MAX: those of all, and nobody writes any more. */
__device__ static inline int expert_await_handed(const expert_choice *c, uint32_t layer, int i)
{
    int n = 0;
    while (n <= i) {
        n = INT_MAX;
#pragma unroll
        for (int warp = 0; warp < HAND_WARPS; warp++) {
            int last = (int)(shared_acquire(shared_address(&c->handed[warp])) - expert_mark(layer, 0));
            n = min(n, last > 0 ? last + HAND_WARPS - 1 : warp);
        }
    }
    return n;
}

/* The inputs of the layer's second products. */
template <typename T, bool FULL>
__device__ static inline void expert_second_inputs(const expert_args &a, const chain_shared &sh,
                                                   const expert_layer &more, uint32_t epoch)
{
    T *place = sh.at<T>(a.at.input);
    if ((!FULL || more.routed) && !expert_handed<FORM_NONE, FULL>(a)) {
        const int32_t *expert = choice_expert(a, expert_choice_of(a, sh));
        const activation_rows pairs = {a.pairs, expert_pairs(a), a.product[3].cols, sh.share[3].n_steps, a.pair_pitch};
        expert_inputs(pairs, place, epoch, [&](int p) {
            int held = expert[p] - a.first_held;
            return held >= 0 && held < a.n_held;
        });
    }
    if (FULL && more.common >= 0) {
        const expert_common &p = a.common[more.common];
        const activation_rows tokens = {a.common_words, a.n_tokens, p.in.rows, p.out_steps,
                                        expert_pair_pitch(p.in.rows)};
        expert_inputs(tokens, place + expert_common_at(a, more), epoch, [](int) { return true; });
    }
}

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

/* The experts' input and choice for one token. */
template <typename T, chain_form FORM, norm_kind NORM>
__device__ static inline void expert_open_lone(const expert_args &a, const chain_shared &sh, const chain_layer &layer,
                                               const expert_layer &more, uint32_t epoch)
{
    const chain_product &p = a.product[2];
    const T bias = route_bias<T>(a, more);
    if constexpr (FORM != FORM_NONE) {
        const recoded_units<T, FORM> units(a, sh);
        input_normed_any<T, NORM>(a, sh, units, a.x[p.x], epoch, layer.norm[p.norm], layer.norm_bias[p.norm]);
        units.store_rest();
    } else {
        chain_input<T, FORM_NONE, NORM>(a, sh, p, expert_choice_of(a, sh)->router, layer, epoch);
    }
    route_await_logits(a, sh, expert_choice_of(a, sh), to_float(bias));
    expert_choose_lone<FORM>(a, sh);
    expert_keep_biases<T>(a, sh, layer.bias[3]);
}

/* The MLP of one layer. */
template <typename T, int SLOTS, chain_form FORM, bool FULL, norm_kind NORM>
__device__ __forceinline__ static void expert_step(weight_ring<SLOTS> &ring, const expert_args &a,
                                                   const chain_shared &sh, const chain_layer &layer,
                                                   const expert_layer &more, chain_count &count, uint32_t epoch)
{
    bool routed = !FULL || more.routed;
    if constexpr (CHAIN_LONE) {
        expert_open_lone<T, FORM, NORM>(a, sh, layer, more, epoch);
    } else {
        chain_input<T, FORM_NONE, NORM>(a, sh, a.product[2], expert_choice_of(a, sh)->router, layer, epoch);
        if (routed)
            expert_router<T>(ring, a, sh, more, count, epoch);
        else if (threadIdx.x == 0)
            expert_choice_of(a, sh)->make_none();
        if constexpr (FORM != FORM_NONE)
            expert_recode<T, FORM>(a, sh);
        if (FULL && more.gate != nullptr)
            expert_weigh_common<T>(a, sh, more.gate);
        if (FULL && more.common >= 0) /* while the logits are in flight */
            expert_common_first<T>(ring, a, sh, more.common, count, epoch);
        if (routed) {
            expert_choose<FULL, FORM>(a, sh, more, epoch);
            expert_keep_biases<T>(a, sh, layer.bias[3]);
        }
    }
    if (routed) {
        if (expert_choice_of(a, sh)->first.done()) /* else a tile's barrier says that everybody has read what the next
                                                      input replaces */
            chain_sync();
        expert_first_any<T, SLOTS, FORM>(ring, a, sh, layer, count, epoch);
        if (expert_handed<FORM, FULL>(a) && threadIdx.x == 0) /* after a barrier */
            barrier_arrive(shared_address(&expert_choice_of(a, sh)->firsts));
    }
    expert_second<T, SLOTS, FORM, FULL>(ring, a, sh, layer, more, count, epoch);
    count.layers++;
}

/* The product for the latents, like that for the queries, from the same input. */
template <typename T, int SLOTS>
__device__ static inline void latent_step(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                          chain_count &count, uint32_t epoch)
{
    const chain_share share = latent_tables_of(a, sh)->share;
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        float *partial = expert_partial(a, sh, count);
        int t = expert_turn(count.tiles % CHAIN_WARPS), pair = threadIdx.x % FINISH_LANES,
            part = threadIdx.x % 32 / FINISH_LANES;
        int row = share.begin + tile * share.tile_rows + pair * 2;
        chain_tile<T>(ring, a, sh, share.n_steps, chain_tile_rows(share, tile), false, partial);
        chain_sync();
        if (t >= a.n_tokens)
            continue;
        float2 s = expert_sums(a, partial, t, pair, part);
        if (part == 0 && row < share.end)
            word_publish(a.latents.words + (t * LATENT_CACHED + row) / 2, word_pair<T>(s.x, s.y, epoch));
    }
}

/* By all threads of the block, before they meet. */
template <chain_form FORM, bool LATENT>
__device__ static inline void expert_open(const expert_args &a, const chain_shared &sh)
{
    expert_choice *c = expert_choice_of(a, sh);
    chain_open_tables(a, sh);
    for (int i = threadIdx.x; i < a.n_layers; i += CHAIN_THREADS + STREAM_THREADS)
        sh.at<expert_layer>(a.more_at)[i] = a.more[i];
    if (LATENT)
        latent_open_tables(a, sh);
    if (threadIdx.x == 0) {
        barrier_open(shared_address(&c->made), 1);
        if constexpr (CHAIN_LONE && FORM != FORM_NONE)
            for (int i = 0; i < 2; i++) {
                barrier_open(shared_address(&c->told[i]), expert_busy<FORM>(a.product[2].cols));
                barrier_open(shared_address(&c->read[i]), 1);
            }
        barrier_open(shared_address(&c->firsts), 1);
        barriers_opened();
        for (uint32_t &taken : c->taken)
            taken = 0;
        c->n = -1;
        for (uint32_t &handed : c->handed)
            handed = 0;
        c->router = chain_make_share(a.router, (int)blockIdx.x, (int)gridDim.x);
        for (int i = 0; i < COMMON_MLPS; i++)
            c->common[i] = chain_make_share(a.common[i].in, (int)blockIdx.x, (int)gridDim.x);
    }
}

/* grid: one block a multiprocessor, all resident. SLOTS: of the ring. FORM: of the experts' weights; all but
 * SCOPE_PLAIN are for 16-bit ones only. HD: see chain_attention; NORM: chain_input's OTHER; LONE: CHAIN_LONE */
template <typename T, int SLOTS, chain_form FORM, expert_scope SCOPE, int HD, norm_kind NORM, int LONE>
__global__ void __launch_bounds__(CHAIN_THREADS + STREAM_THREADS, 1)
    persistent_experts_kernel(const __grid_constant__ expert_args a)
{
    constexpr bool FULL = SCOPE != SCOPE_PLAIN, LATENT = SCOPE == SCOPE_LATENT;
    extern __shared__ __align__(1024) char shared[];
    const chain_shared sh = {shared, (chain_share *)(shared + a.at.shares)};
    weight_ring<SLOTS> ring(a, sh);
    chain_count count = {};
    if (threadIdx.x == 0) {
        ring.open();
        *sh.at<int>(a.at.hold) = 0;
    }
    expert_open<FORM, LATENT>(a, sh);
    __syncthreads();
    if (threadIdx.x >= CHAIN_THREADS) {
        give_registers<EXPERT_STREAM_REGISTERS>();
        if (threadIdx.x == CHAIN_THREADS)
            stream_expert_weights<SLOTS, FORM, SCOPE>(a, sh);
        if constexpr (CHAIN_LONE && FORM == FORM_E4M3)
            if (threadIdx.x >= CHAIN_THREADS + 32)
                expert_hand_on<T, FORM>(a, sh);
        if constexpr (expert_plain<FORM, FULL>())
            if (threadIdx.x >= CHAIN_THREADS + 32 && expert_handed<FORM, FULL>(a))
                expert_hand_in<T>(a, sh);
        return;
    }
    take_registers<EXPERT_CHAIN_REGISTERS>();
    wait_for_previous();
    uint32_t step = a.step[blockIdx.x], epoch = step * (uint32_t)(a.n_layers + 1);
    if constexpr (CHAIN_LONE) {
        route_open(a, sh);
        expert_clear_pairs(a, expert_choice_of(a, sh));
    }
    chain_open_step(a, sh);
    chain_embed<T, false>(a, sh, epoch);
    for (int product = 0; product <= a.n_layers * CHAIN_PRODUCTS; product++) {
        int k = chain_index(a, product);
        const chain_layer &layer = sh.at<chain_layer>(a.at.layers)[product / CHAIN_PRODUCTS];
        epoch += product % CHAIN_PRODUCTS == 0;
        if (k == CHAIN_HEAD && a.n_ranks == 1) /* else NCCL may gather the logits */
            let_next_begin();
        const expert_layer &more = expert_layer_of(a, sh, product / CHAIN_PRODUCTS); /* of the head: none */
        if constexpr (CHAIN_LONE) {
            if (k == 0)
                route_fetch(a, sh, layer.norm[a.product[2].norm], product / CHAIN_PRODUCTS);
            else if (k == 1)
                route_arrive();
        }
        if (k == a.attention_before) {
            if constexpr (LATENT)
                latent_attention<T>(a, sh, layer, latent_layers(a, sh)[product / CHAIN_PRODUCTS], epoch);
            else
                chain_attention<T, false, true, ATTEND_NUMBERS, HD>(a, sh, layer, epoch, more.sinks);
        }
        if (k == 2)
            expert_step<T, SLOTS, FORM, FULL, NORM>(ring, a, sh, layer, more, count, epoch);
        else if (k != 3)
            chain_step<T, SLOTS, expert_dense_form(FORM), NORM>(ring, a, sh, product, k, layer, count, epoch);
        if constexpr (CHAIN_LONE)
            if (k == 1)
                route_add<T>(a, sh, count);
        if constexpr (LATENT)
            if (k == 0)
                latent_step<T>(ring, a, sh, count, epoch);
    }
    if (threadIdx.x == 0)
        a.step[blockIdx.x] = step + 1;
}

#endif
