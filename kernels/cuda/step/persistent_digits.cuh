/* kernels/cuda/step/persistent_digits.cuh - activations of one token as integers, for weights in INT4. A group of them
 * becomes numbers of 16 bits in a unit of its own, a power of two, and each number two digits of 8 bits. So elements of
 * bf16 are exact if they are at least 2^-7 of the group's largest one; others are off by at most 2^-15 of that.
 * persistent_digit_tile.cuh multiplies the digits. Only persistent_int4_one.cu includes this. */
#ifndef STEP_PERSISTENT_DIGITS_CUH
#define STEP_PERSISTENT_DIGITS_CUH

#include "kernels/cuda/step/persistent_input.cuh"

/* The bits of DIGIT_FLOAT, plus an integer below 2^22, are those of the sum as a float. */
#define DIGIT_FLOAT 12582912.0f /* 1.5 * 2^23 */
#define DIGIT_BITS  0x4b400000u

#define DIGIT_CENTRE 0x8080u  /* a number of 16 bits plus this has unsigned digits, each 128 higher */
#define DIGIT_EXCESS 0x101ffu /* raises the exponent of floats from 32640 / 2^14 on, whose number would be too large */

/* A sum of a group's digits, x = DIGIT_FLOAT plus 16 times the sum, contributes u x + c, with a zero point of 8. */
struct alignas(16) digit_factors {
    float high_u, low_u, high_c, low_c;
};

/* The exponent of a group's unit, plus 14, biased. most: the bits of its largest absolute value. */
__device__ static inline uint32_t digit_exponent(uint32_t most)
{
    const uint32_t LEAST = 32; /* of it; no group of all zeros has less */
    return max((most + DIGIT_EXCESS) >> 23, LEAST);
}

/* sum: of the group's numbers. Infinity and what is not a number make all results not a number. */
__device__ static inline digit_factors digit_factors_of(uint32_t most, int sum)
{
    const uint32_t INFINITE = 0x7f800000u;
    const float unit =
        __uint_as_float(most < INFINITE ? (digit_exponent(most) - 18) << 23 : 0x7fffffffu); /* a sixteenth */
    return {256 * unit, unit, -256 * DIGIT_FLOAT * unit, -(float)((int)DIGIT_FLOAT + 16 * 8 * sum) * unit};
}

/* Stores groups, the first n of N: digits of each as words [even columns, odd ones][high, low][16] of four columns in
 * eight, GROUP_COLUMNS words apart, and factors. bits: the lane's four columns of each group. All lanes of a warp must
 * call this. */
template <typename T, int N>
__device__ static inline void digits_store(const uint2 (&bits)[N], int n, uint32_t *digits, digit_factors *factors)
{
    const int lane = threadIdx.x % 32;
    const bool odd = lane % 2 != 0;
    uint32_t *to = digits + lane % 2 * 32 + lane / 2, most_of_mine = 0, sum_of_mine = 0; /* lane i's: of group i */
#pragma unroll
    for (int i = 0; i < N; i++, to += GROUP_COLUMNS / 2) {
        const float2 x[2] = {tensor_unpack<T>(bits[i].x), tensor_unpack<T>(bits[i].y)};
        uint32_t most = max(max(__float_as_uint(fabsf(x[0].x)), __float_as_uint(fabsf(x[0].y))),
                            max(__float_as_uint(fabsf(x[1].x)), __float_as_uint(fabsf(x[1].y))));
        most = __reduce_max_sync(0xffffffffu, most);
        const float per_unit = __uint_as_float((268 - digit_exponent(most)) << 23);
        auto number = [&](float y) { return __float_as_uint(fmaf(y, per_unit, DIGIT_FLOAT + DIGIT_CENTRE)); };
        const uint32_t b[] = {number(x[0].x), number(x[0].y), number(x[1].x), number(x[1].y)};
        const uint32_t sum = __reduce_add_sync(0xffffffffu, b[0] + b[1] + b[2] + b[3]);
        most_of_mine = lane == i ? most : most_of_mine;
        sum_of_mine = lane == i ? sum : sum_of_mine;
        const uint32_t even_two = codes_pick(b[0], b[2], 0x5140), odd_two = codes_pick(b[1], b[3], 0x5140),
                       other = __shfl_xor_sync(0xffffffffu, odd ? even_two : odd_two, 1),
                       first = odd ? other : even_two, second = odd ? odd_two : other;
        if (i < n) {
            to[0] = codes_pick(first, second, 0x7632) ^ 0x80808080u;
            to[16] = codes_pick(first, second, 0x5410) ^ 0x80808080u;
        }
    }
    if (lane < min(n, N))
        factors[lane] =
            digit_factors_of(most_of_mine, (int)(sum_of_mine - GROUP_COLUMNS * (DIGIT_BITS + DIGIT_CENTRE)));
}

/* The same as for other forms, but that quantised weights meet digits. */
template <typename T>
struct input_units<T, FORM_INT4> {
    static constexpr bool FINE = true;
    static constexpr int SPANS = 4; /* of a step, where weights are quantised */

    int n;               /* maximum over the warp's lanes */
    int n_places;        /* of this lane, within the product's steps */
    int column, columns; /* unit 0's first one; of the matrix */
    int stride;          /* distance from one unit to the next, in elements */
    T *place;            /* unit 0's; where weights are quantised, of its group */
    digit_factors *factors;
    bool coded; /* the product's weights are quantised; from a vote, so that the compiler knows that all lanes agree */

    __device__ input_units(const chain_args &a, const chain_shared &sh, const chain_share &s, int n_columns)
        : n((s.n_spans + 1) / 2), columns(n_columns), stride(GROUP_COLUMNS),
          coded(__any_sync(0xffffffffu, s.n_spans != s.n_steps))
    {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32, piece = lane / 8, part = lane % 8;
        column = coded ? chain_column<SPANS>(warp, piece) : chain_column<1>(warp, piece);
        column += part * UNIT_COLUMNS;
        n_places = (s.n_spans * 16 - lane + 31) / 32;
        factors = sh.at<digit_factors>(a.at.sums) + warp * (s.n_spans / 2);
        place = sh.at<T>(a.at.input) + chain_input_at(warp, s.n_spans, coded ? 0 : piece, a.n_tokens, 0);
        if (!coded)
            place += part / 2 * 8 + part % 2 * 2;
    }
    /* Columns from unit 0 to unit i. */
    __device__ int offset(int i) const
    {
        return coded ? i / 2 * (2 * UNIT_STRIDE) + i % 2 * GROUP_COLUMNS : i * UNIT_STRIDE;
    }
    /* Skips the first n, an even number. */
    __device__ void skip(int units)
    {
        n -= units;
        n_places -= units;
        column += units * UNIT_STRIDE;
        place += units * stride;
        factors += units;
    }
    __device__ bool has(int i) const
    {
        return column + offset(i) < columns;
    }
    /* The middle pairs of every 8 columns are swapped, as chain_tile expects. */
    template <int N>
    __device__ void store(const uint2 (&bits)[N]) const
    {
        if (coded) {
            digits_store<T>(bits, n_places, (uint32_t *)place, factors);
            return;
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < n_places) {
                uint32_t *to = (uint32_t *)(place + i * stride);
                to[0] = bits[i].x;
                to[2] = bits[i].y;
            }
    }
};

/* As for other forms, but that N units are stored together, which takes fewer instructions. */
template <typename T, int N, int G>
__device__ static inline void input_plain(const chain_args &a, const input_units<T, FORM_INT4> &units,
                                          const unsigned long long *words, uint32_t epoch)
{
    uint2 bits[1][N];
    input_await<T, N, 1>(a, units, words, 0, epoch, bits);
    units.store(bits[0]);
}

template <typename T, norm_kind KIND, int N, int G>
__device__ static inline void input_normed(const chain_args &a, const chain_shared &sh,
                                           const input_units<T, FORM_INT4> &units, const unsigned long long *words,
                                           uint32_t epoch, const void *weight, const void *bias)
{
    const norm_weights<T, KIND, N> norm(units, weight, bias);
    const norm_columns columns(units);
    float4 *stats = sh.at<float4>(a.at.stats);
    uint2 bits[1][N];
    input_await<T, N, 1>(a, units, words, 0, epoch, bits);
    float4 part = norm_partial<T, KIND, N>(bits[0], columns);
    if (threadIdx.x % 32 == 0)
        stats[threadIdx.x / 32] = part;
    chain_sync();
    const float2 whole = norm_whole<KIND>(stats, a.inverse_hidden, a.eps);
#pragma unroll
    for (int i = 0; i < N; i++)
        bits[0][i] = norm.apply(whole, i, bits[0][i]);
    units.store(bits[0]);
}

#endif
