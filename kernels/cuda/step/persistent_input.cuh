/* kernels/cuda/step/persistent_input.cuh - a product's activations, from words to shared memory. A warp waits only for
 * the columns that it multiplies; the norms' statistics need a barrier of the block for every group of tokens. All
 * warps do this at once, so that every instruction after a wait takes four clocks: as much as possible is computed
 * before the wait, values stay in registers, and properties of the model are template parameters. */
#ifndef STEP_PERSISTENT_INPUT_CUH
#define STEP_PERSISTENT_INPUT_CUH

#include "kernels/cuda/step/persistent_groups.cuh"

#define UNIT_COLUMNS 4 /* of a unit: two words, 8 bytes in shared memory */
#define UNIT_STRIDE \
    (2 * CHAIN_WARPS * 64) /* distance in columns from a lane's unit to its next one, two steps
                                                further */
#define UNITS_AT_ONCE 8    /* maximum units that a lane waits for at once, of one token or several */
#define NORM_UNITS    4    /* units per lane that a norm keeps in registers: 8192 columns */

/* A lane's units of a warp's columns: unit i is part lane % 8 of piece lane / 8 + 4 i. FORM: of the kernel's codes. */
template <typename T, chain_form FORM>
struct input_units {
    static constexpr bool CODES = FORM != FORM_NONE, FINE = FORM == FORM_INT4;
    static constexpr bool INTEGERS = FORM == FORM_INT8 || FORM == FORM_INT4;
    static constexpr int SPANS = FINE ? 4 : 2; /* of a step, where weights are quantised */

    int n;               /* maximum over the warp's lanes */
    int n_places;        /* of this lane, within the product's steps */
    int column, columns; /* unit 0's first one; of the matrix */
    int stride;          /* distance from one unit to the next, in elements */
    T *place;            /* unit 0's of token 0 */
    float *sums;         /* INTEGERS: see keep_sum */
    bool coded, halves;  /* the product's weights are quantised; bf16 is converted to f16 */

    __device__ input_units(const chain_args &a, const chain_shared &sh, const chain_share &s, int n_columns)
        : n((s.n_spans + 1) / 2), columns(n_columns), stride(4 * a.n_tokens * 32),
          coded(CODES && s.n_spans != s.n_steps)
    {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32, piece = lane / 8, part = lane % 8;
        column = coded ? chain_column<SPANS>(warp, piece) : chain_column<1>(warp, piece);
        column += part * UNIT_COLUMNS;
        n_places = (s.n_spans * 16 - lane + 31) / 32;
        halves = std::is_same<T, __nv_bfloat16>::value && coded;
        sums = sh.at<float>(a.at.sums) + warp * (s.n_spans / 2) * CHAIN_OCTET;
        T *input = sh.at<T>(a.at.input);
        if (coded)
            place = input + code_input_at<FORM>(a, s, warp, piece * 32 + part * UNIT_COLUMNS);
        else
            place = input + chain_input_at(warp, s.n_spans, piece, a.n_tokens, 0) + part / 2 * 8 + part % 2 * 2;
    }
    /* Columns from unit 0 to unit i. */
    __device__ int offset(int i) const
    {
        return FINE && coded ? i / 2 * (2 * UNIT_STRIDE) + i % 2 * GROUP_COLUMNS : i * UNIT_STRIDE;
    }
    /* Skips the first n, an even number. */
    __device__ void skip(int units)
    {
        n -= units;
        n_places -= units;
        column += units * UNIT_STRIDE;
        place += units * stride;
        sums += units * CHAIN_OCTET;
    }
    __device__ bool has(int i) const
    {
        return column + offset(i) < columns;
    }
    __device__ static uint32_t half_pair(uint32_t pair)
    {
        float2 x = tensor_unpack<T>(pair);
        return tensor_pack<__half>(x.x * INPUT_HALF_SCALE, x.y * INPUT_HALF_SCALE);
    }
    /* Columns (0, 4), (2, 6), (1, 5), (3, 7) of eight, the order of code_tile for INT4: of two lanes one stores the
     * even, one the odd ones. */
    __device__ static uint2 pair_up(uint2 x)
    {
        bool odd = threadIdx.x % 2 != 0;
        uint32_t even_two = codes_pick(x.x, x.y, 0x5410), odd_two = codes_pick(x.x, x.y, 0x7632);
        uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? even_two : odd_two, 1);
        uint32_t low = odd ? other : even_two, high = odd ? odd_two : other;
        return make_uint2(codes_pick(low, high, 0x5410), codes_pick(low, high, 0x7632));
    }
    /* Keeps the sum of unit i over all lanes, which is a group's, times -1 / INTEGER_UNIT. */
    __device__ void keep_sum(int i, int t, uint2 x) const
    {
        float2 a = tensor_unpack<__half>(x.x), b = tensor_unpack<__half>(x.y);
        float sum = warp_sum(a.x + a.y + (b.x + b.y));
        if (threadIdx.x % 32 == 0 && i < n_places)
            sums[i * CHAIN_OCTET + t] = sum * (-1 / INTEGER_UNIT);
    }
    __device__ void store_coded(int i, int t, uint2 x) const
    {
        if (halves)
            x = make_uint2(half_pair(x.x), half_pair(x.y));
        if (INTEGERS)
            keep_sum(i, t, x);
        if (FINE)
            x = pair_up(x);
        if (i < n_places)
            *(uint2 *)(place + i * stride + t * 32) = x;
    }
    /* The middle pairs of every 8 columns are swapped, as chain_tile expects. */
    __device__ void store(int i, int t, uint2 bits) const
    {
        uint32_t *to = (uint32_t *)(place + i * stride + t * 32);
        if (coded) {
            store_coded(i, t, bits);
        } else if (i < n_places) {
            to[0] = bits.x;
            to[2] = bits.y;
        }
    }
};

/* Waits for the bits of N units of each of G tokens from token t on; zeros for those outside. words:
 * [n_tokens] [columns / 2] */
template <typename T, int N, int G, typename U>
__device__ static inline void input_await(const chain_args &a, const U &units, const unsigned long long *words, int t,
                                          uint32_t epoch, uint2 (&bits)[G][N])
{
    const unsigned long long *first = words + ((size_t)t * units.columns + units.column) / 2;
    int row = units.columns / 2;
    auto lane0 = (unsigned long long)__shfl_sync(0xffffffffu, (unsigned long long)(units.has(0) ? first : nullptr), 0);
    ulonglong2 v[G * N];
    word_await(
        v, [&](int j) { return units.has(j % N) && (G == 1 || t + j / N < a.n_tokens); },
        [&](int j) { return first + j / N * row + units.offset(j % N) / 2; }, epoch, (const unsigned long long *)lane0);
#pragma unroll
    for (int j = 0; j < G * N; j++)
        bits[j / N][j % N] = make_uint2((uint32_t)v[j].x, (uint32_t)v[j].y);
}

/* N units unchanged. */
template <typename T, int N, int G, typename U>
__device__ static inline void input_plain(const chain_args &a, const U &units, const unsigned long long *words,
                                          uint32_t epoch)
{
#pragma unroll 1
    for (int t = 0; t < a.n_tokens; t += G) {
        uint2 bits[G][N];
        input_await<T, N, G>(a, units, words, t, epoch, bits);
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (G == 1 || t + g < a.n_tokens)
                    units.store(i, t + g, bits[g][i]);
    }
}

/* The weights of a norm at a lane's N units, loaded before the wait. LayerNorm has a bias. */
template <typename T, norm_kind KIND, int N>
struct norm_weights {
    uint2 w[N], b[N];

    /* value: of an element if the model has no weights. Outside: zeros, which meet weights of zero. */
    __device__ static uint2 fetch(const void *from, int column, bool inside, float value)
    {
        if (from != nullptr && inside)
            return *(const uint2 *)((const T *)from + column);
        uint32_t pair = inside ? tensor_pack<T>(value, value) : 0;
        return make_uint2(pair, pair);
    }
    template <typename U>
    __device__ norm_weights(const U &units, const void *weight, const void *bias)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            int c = units.column + units.offset(i);
            w[i] = fetch(weight, c, units.has(i), 1);
            if (KIND == NORM_LAYER)
                b[i] = fetch(bias, c, units.has(i), 0);
        }
    }
    /* Two elements. whole: mean and 1 / deviation. */
    __device__ static uint32_t apply(float2 whole, uint32_t x, uint32_t w, uint32_t b)
    {
        float2 e = tensor_unpack<T>(x);
        if (KIND == NORM_RMS)
            return tensor_multiply<T>(w, tensor_pack<T>(e.x * whole.y, e.y * whole.y));
        float2 scale = tensor_unpack<T>(w), shift = tensor_unpack<T>(b);
        if (KIND == NORM_RMS_OFFSET)
            return tensor_pack<T>((1 + scale.x) * (e.x * whole.y), (1 + scale.y) * (e.y * whole.y));
        if (KIND == NORM_RMS_ONCE)
            return tensor_pack<T>(scale.x * (e.x * whole.y), scale.y * (e.y * whole.y));
        return tensor_pack<T>((e.x - whole.x) * whole.y * scale.x + shift.x,
                              (e.y - whole.x) * whole.y * scale.y + shift.y);
    }
    __device__ uint2 apply(float2 whole, int i, uint2 x) const
    {
        return make_uint2(apply(whole, x.x, w[i].x, b[i].x), apply(whole, x.y, w[i].y, b[i].y));
    }
};

/* The number of a warp's columns, its inverse, and the number of the lane's units. */
struct norm_columns {
    int n_mine;
    float n, inverse;

    template <typename U>
    __device__ norm_columns(const U &units)
        : n_mine(max(0, (units.columns - units.column + UNIT_STRIDE - 1) / UNIT_STRIDE))
    {
        if (U::FINE && units.coded) /* two at a time */
            n_mine = 2 * max(0, (units.columns - units.column + 2 * UNIT_STRIDE - 1) / (2 * UNIT_STRIDE));
        n = (float)(warp_sum(n_mine) * UNIT_COLUMNS);
        inverse = n > 0 ? 1.0f / n : 0.0f;
    }
};

/* A warp's share of a token's statistics: sum, squares (around the warp's own mean, for LayerNorm), columns, mean. */
template <typename T, norm_kind KIND, int N>
__device__ static inline float4 norm_partial(const uint2 (&bits)[N], const norm_columns &columns)
{
    float2 x[2 * N];
    float sum = 0, square = 0, mean = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[2 * i] = tensor_unpack<T>(bits[i].x);
        x[2 * i + 1] = tensor_unpack<T>(bits[i].y);
    }
    if (KIND == NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < 2 * N; i++)
            sum += x[i].x + x[i].y;
        sum = warp_sum(sum);
        mean = sum * columns.inverse;
    }
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        if (KIND != NORM_LAYER || i / 2 < columns.n_mine) { /* zeros outside add nothing to squares around 0 */
            float d0 = x[i].x - mean, d1 = x[i].y - mean;
            square += d0 * d0 + d1 * d1;
        }
    return make_float4(sum, warp_sum(square), columns.n, mean);
}

/* Over the 16 lanes of each half of a warp. */
__device__ static inline float norm_sum(float x)
{
#pragma unroll
    for (int d = CHAIN_WARPS / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Mean and 1 / deviation from the warps' shares, one share per lane: a serial sum took longer than the rest of an
 * input. */
template <norm_kind KIND>
__device__ static inline float2 norm_whole(const float4 *part, float inverse_hidden, float eps)
{
    const float4 *mine = part + threadIdx.x % CHAIN_WARPS;
    if (KIND != NORM_LAYER)
        return make_float2(0, rsqrtf(norm_sum(mine->y) * inverse_hidden + eps));
    float4 p = *mine;
    float mean = norm_sum(p.x) * inverse_hidden, away = p.w - mean;
    return make_float2(mean, rsqrtf(norm_sum(p.y + p.z * away * away) * inverse_hidden + eps));
}

/* The normalised residual stream. words: [n_tokens][hidden / 2]. All threads of the block must call this. */
template <typename T, norm_kind KIND, int N, int G, typename U>
__device__ static inline void input_normed(const chain_args &a, const chain_shared &sh, const U &units,
                                           const unsigned long long *words, uint32_t epoch, const void *weight,
                                           const void *bias)
{
    const norm_weights<T, KIND, N> norm(units, weight, bias);
    const norm_columns columns(units);
    float4 *stats = sh.at<float4>(a.at.stats);
#pragma unroll 1
    for (int t = 0; t < a.n_tokens; t += G) {
        uint2 bits[G][N];
        input_await<T, N, G>(a, units, words, t, epoch, bits);
#pragma unroll
        for (int g = 0; g < G; g++) {
            float4 part = norm_partial<T, KIND, N>(bits[g], columns);
            if (threadIdx.x % 32 == 0 && (G == 1 || t + g < a.n_tokens))
                stats[(t + g) * CHAIN_WARPS + threadIdx.x / 32] = part;
        }
        chain_sync();
        float2 whole[G];
#pragma unroll
        for (int g = 0; g < G; g++)
            whole[g] = norm_whole<KIND>(stats + (G == 1 ? t : min(t + g, a.n_tokens - 1)) * CHAIN_WARPS,
                                        a.inverse_hidden, a.eps);
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (G == 1 || t + g < a.n_tokens)
                    units.store(i, t + g, norm.apply(whole[g], i, bits[g][i]));
    }
}

template <typename T, norm_kind KIND, int N, typename U>
__device__ static inline void input_normed_units(const chain_args &a, const chain_shared &sh, const U &units,
                                                 const unsigned long long *words, uint32_t epoch, const void *weight,
                                                 const void *bias)
{
    const int TOKENS = N == NORM_UNITS ? 1 : UNITS_AT_ONCE / N; /* registers set the limit */
    if (TOKENS == 1 || a.n_tokens == 1)
        input_normed<T, KIND, N, 1>(a, sh, units, words, epoch, weight, bias);
    else
        input_normed<T, KIND, N, TOKENS>(a, sh, units, words, epoch, weight, bias);
}

/* FEW: one unit of each of many tokens at once, where a lane has no more */
template <typename T, norm_kind KIND, bool FEW = false, typename U>
__device__ static inline void input_normed_any(const chain_args &a, const chain_shared &sh, const U &units,
                                               const unsigned long long *words, uint32_t epoch, const void *weight,
                                               const void *bias)
{
    static_assert(NORM_UNITS == 4, "one of these");
    if (!CHAIN_LONE && FEW && units.n == 1 && a.n_tokens > UNITS_AT_ONCE / 2)
        input_normed_units<T, KIND, 1>(a, sh, units, words, epoch, weight, bias);
    else if (CHAIN_LONE || units.n <= 2)
        input_normed_units<T, KIND, 2>(a, sh, units, words, epoch, weight, bias);
    else if (units.n == 3)
        input_normed_units<T, KIND, 3>(a, sh, units, words, epoch, weight, bias);
    else
        input_normed_units<T, KIND, 4>(a, sh, units, words, epoch, weight, bias);
}

template <typename T, int N, typename U>
__device__ static inline void input_plain_units(const chain_args &a, const U &units, const unsigned long long *words,
                                                uint32_t epoch)
{
    if (N == UNITS_AT_ONCE || a.n_tokens == 1)
        input_plain<T, N, 1>(a, units, words, epoch);
    else
        input_plain<T, N, UNITS_AT_ONCE / N>(a, units, words, epoch);
}

template <typename T, typename U>
__device__ static inline void input_plain_any(const chain_args &a, U units, const unsigned long long *words,
                                              uint32_t epoch)
{
    static_assert(LONE_COLUMNS <= 2 * UNIT_STRIDE, "two units of a lane");
#pragma unroll 1
    for (; !CHAIN_LONE && units.n > 4; units.skip(UNITS_AT_ONCE))
        input_plain_units<T, UNITS_AT_ONCE>(a, units, words, epoch);
    if (!CHAIN_LONE && units.n > 2)
        input_plain_units<T, 4>(a, units, words, epoch);
    else if (CHAIN_LONE || units.n == 2)
        input_plain_units<T, 2>(a, units, words, epoch);
    else if (units.n == 1)
        input_plain_units<T, 1>(a, units, words, epoch);
}

#endif
