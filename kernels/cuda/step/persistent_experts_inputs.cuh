/* kernels/cuda/step/persistent_experts_inputs.cuh - the activations of pairs of a token and an expert on their way to
 * the second products in 16 bits. */
#ifndef STEP_PERSISTENT_EXPERTS_INPUTS_CUH
#define STEP_PERSISTENT_EXPERTS_INPUTS_CUH

#include "kernels/cuda/step/persistent_experts_results.cuh"

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

#endif
