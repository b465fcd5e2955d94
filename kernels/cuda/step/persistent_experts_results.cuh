/* kernels/cuda/step/persistent_experts_results.cuh - the epilogue of a mixture's products: adds up the warps' shares
 * and biases, activates, and publishes the results. */
#ifndef STEP_PERSISTENT_EXPERTS_RESULTS_CUH
#define STEP_PERSISTENT_EXPERTS_RESULTS_CUH

#include "kernels/cuda/step/persistent_experts_codes.cuh"
#include "kernels/cuda/step/persistent_kernel.cuh"

/* The buffer for the warps' sums of the next tile. */
__device__ static inline float *expert_partial(const expert_args &a, const chain_shared &sh, const chain_count &count)
{
    return sh.at<float>(a.at.partial) + count.tiles % 2 * CHAIN_WARPS * a.n_tokens * CHAIN_ROWS;
}

/* The token whose results of a tile this warp publishes, if `first` is the first token's warp. */
__device__ static inline int expert_turn(int first)
{
    return (threadIdx.x / 32 + CHAIN_WARPS - first) % CHAIN_WARPS;
}

/* The warps that have columns of an expert's product of `cols`. */
template <chain_form FORM>
__device__ static inline int expert_busy(int cols)
{
    return min(CHAIN_WARPS, (cols + EXPERT_WARP_COLUMNS<FORM> - 1) / EXPERT_WARP_COLUMNS<FORM>);
}

/* The first of the warps that hand on a tile's results, a token each: they take turns. Where the experts are MXFP4, of
 * `cols` columns, warps that have none of these do, if there are enough: the others wait for whom they have to. */
template <chain_form FORM>
__device__ static inline int expert_finisher(const expert_args &a, const chain_count &count, int cols)
{
    if constexpr (FORM == FORM_E2M1) {
        int busy = expert_busy<FORM>(cols), idle = CHAIN_WARPS - busy;
        if (idle >= a.n_tokens)
            return busy + (idle >= 2 * a.n_tokens ? count.tiles % 2 * a.n_tokens : 0);
    }
    return count.tiles % CHAIN_WARPS;
}

/* The sums of the first n warps in a token's pair of rows, for all lanes of the pair: a lane adds those of its part of
 * the warps. */
__device__ static inline float2 expert_sums(const expert_args &a, const float *partial, int t, int pair, int part,
                                            int n = CHAIN_WARPS)
{
    float2 s = make_float2(0, 0);
#pragma unroll
    for (int v = 0; v < CHAIN_WARPS / FINISH_PARTS; v++) {
        int warp = part * (CHAIN_WARPS / FINISH_PARTS) + v;
        if (warp >= n)
            continue;
        float2 x = *(const float2 *)(partial + (warp * a.n_tokens + t) * CHAIN_ROWS + pair * 2);
        s.x += x.x;
        s.y += x.y;
    }
    return make_float2(chain_join(s.x), chain_join(s.y));
}

/* The unconverted biases of a lane's pair of the router's rows: a conversion here would wait for the load. (Those of
 * sigmoid routers affect the choice only: see expert_key.) */
template <typename T>
struct router_biases {
    T of[2];

    __device__ router_biases(const expert_args &a, const expert_layer &more, int row, int end)
    {
        const T *bias = a.how.sigmoid ? nullptr : (const T *)more.router_bias;
#pragma unroll
        for (int k = 0; k < 2; k++)
            of[k] = bias != nullptr && row + k < end ? bias[row + k] : from_float<T>(0);
    }
};

/* The unconverted biases of a lane's pair of a first product's rows. */
template <typename T>
__device__ static inline uint32_t expert_first_bias(const expert_args &a, const expert_choice *c,
                                                    const expert_tiles &at, const void *bias)
{
    const int UP = FINISH_LANES / 2; /* the lanes from there on have the ups, unless gates and ups alternate */
    int ffn = a.product[2].rows, pair = threadIdx.x % FINISH_LANES;
    bool turns = expert_in_turns(a), up = !turns && pair >= UP;
    int row = turns ? pair : (up ? pair - UP : pair) * 2, first = turns ? 2 * (at.row + row) : at.row + row;
    if (bias == nullptr || row >= at.n)
        return 0;
    return ((const uint32_t *)bias)[(choice_which(a, c)[at.i] * 2 * ffn + (up ? ffn : 0) + first) / 2];
}

/* Activates and publishes n results of a lane's pair of sums: the upper half of the lanes has the ups. */
template <typename T>
__device__ static inline void expert_activate(const expert_args &a, float2 s, int n, unsigned long long *to,
                                              uint32_t epoch)
{
    const int UP = FINISH_LANES / 2;
    int pair = threadIdx.x % FINISH_LANES, part = threadIdx.x % 32 / FINISH_LANES;
    float2 up = make_float2(__shfl_down_sync(0xffffffffu, s.x, UP), __shfl_down_sync(0xffffffffu, s.y, UP));
    if (part == 0 && pair < UP && pair * 2 < n)
        word_publish(to + pair, word_pair<T>(gated_activation(a.activation, s.x, up.x),
                                             gated_activation(a.activation, s.y, up.y), epoch));
}

/* Publishes a tile's results, activated, out of a lane's pair of sums; p: the pair of the token and the expert. */
template <typename T>
__device__ static inline void expert_first_results(const expert_args &a, const expert_tiles &at, int p, float2 s,
                                                   uint32_t bias, uint32_t epoch)
{
    int pair = threadIdx.x % FINISH_LANES, part = threadIdx.x % 32 / FINISH_LANES;
    unsigned long long *to = a.pairs + ((size_t)p * a.product[2].rows + at.row) / 2;
    float2 b = tensor_unpack<T>(bias);
    s = make_float2(s.x + b.x, s.y + b.y);
    if (expert_in_turns(a)) {
        float x = gated_by(gate_formula_of(ACTIVATION_SWIGLU), s.x, s.y), y = __shfl_down_sync(0xffffffffu, x, 1);
        if (part == 0 && pair % 2 == 0 && pair < at.n)
            word_publish(to + pair / 2, word_pair<T>(x, y, epoch));
        return;
    }
    expert_activate<T>(a, s, at.n, to, epoch);
}

/* The pair of token t and of a tile's expert; < 0: there is none. */
__device__ static inline int expert_pair_of(const expert_args &a, const expert_choice *c, const expert_tiles &at, int t)
{
    return t < a.n_tokens ? choice_pair(a, c)[at.i * NARROW_TOKENS + t] : -1;
}

/* A tile's results, activated, of the tokens that have the expert. */
template <typename T>
__device__ static inline void expert_finish_first(const expert_args &a, const expert_choice *c, const expert_tiles &at,
                                                  int t, const float *partial, uint32_t bias, uint32_t epoch)
{
    int pair = threadIdx.x % FINISH_LANES, part = threadIdx.x % 32 / FINISH_LANES, p = expert_pair_of(a, c, at, t);
    if (p >= 0)
        expert_first_results<T>(a, at, p, expert_sums(a, partial, t, pair, part), bias, epoch);
}

/* The sums of the second product's biases in the block's rows, for each token, [n_tokens][x_rows]. The warp
 * that computed a token's shares also computes its sums of biases and adds them to its own sums (expert_tile). Called
 * before the first product, since the biases come from memory. */
template <typename T>
__device__ static inline void expert_keep_biases(const expert_args &a, const chain_shared &sh, const void *bias)
{
    const expert_choice *c = expert_choice_of(a, sh);
    const chain_share &share = sh.share[3];
    int t = threadIdx.x / 32, first = t * a.how.n_chosen;
    if (bias == nullptr || t >= a.n_tokens)
        return;
    __syncwarp(); /* the shares */
    for (int row = share.begin + (int)threadIdx.x % 32; row < share.end; row += 32) {
        float sum = 0;
#pragma unroll 4
        for (int p = first; p < first + a.how.n_chosen; p++) {
            int held = choice_expert(a, c)[p] - a.first_held;
            if (held >= 0 && held < a.n_held)
                sum = fmaf(choice_share(a, c)[p], to_float(((const T *)bias)[(size_t)held * a.product[3].rows + row]),
                           sum);
        }
        sh.at<float>(a.at.kept)[t * a.at.x_rows + row - share.begin] = sum;
    }
    __syncwarp();
}

/* This warp's parts of x . gate for every token, from its columns of the normalised input. */
template <typename T>
__device__ static inline void expert_weigh_common(const expert_args &a, const chain_shared &sh, const void *gate)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_steps = sh.share[2].n_steps, i = lane % 8;
    int place = lane / 8 * 8 + i % 2 + i / 2 % 2 * 4 + i / 4 * 2; /* the middle pairs of 8 columns are swapped */
#pragma unroll 1
    for (int t = 0; t < a.n_tokens; t++) {
        float sum = 0;
        for (int piece = 0; piece < 2 * n_steps; piece++) {
            int column = chain_column<1>(warp, piece) + place;
            if (column < a.hidden)
                sum = fmaf(to_float(sh.at<T>(a.at.input)[chain_input_at(warp, n_steps, piece, a.n_tokens, t) + lane]),
                           to_float(((const T *)gate)[column]), sum);
        }
        sum = warp_sum(sum);
        if (lane == 0)
            sh.at<float>(a.gates)[warp * a.n_tokens + t] = sum;
    }
}

/* The factor of the shared expert's output for token t. */
__device__ static inline float expert_common_weight(const expert_args &a, const chain_shared &sh, const void *gate,
                                                    int t)
{
    float sum = 0;
    if (gate == nullptr)
        return 1;
    for (int warp = 0; warp < CHAIN_WARPS; warp++)
        sum += sh.at<float>(a.gates)[warp * a.n_tokens + t];
    return sigmoid(sum);
}

#endif
