/* kernels/cuda/codes_wide.cuh - dequantises weights (codes.cuh) to 16-bit numbers, eight neighbouring columns of one
 * group at a time, each rounded once. */
#ifndef CUDA_CODES_WIDE_CUH
#define CUDA_CODES_WIDE_CUH

#include "kernels/cuda/codes.cuh"

#include <type_traits>

template <enum codes C>
constexpr int bits_of_codes = C == CODES_E4M3 || C == CODES_INT8 ? 8 : 4;

/* Scale i in its stored type, so that its load need not be awaited; and its value. */
__device__ static inline uint32_t coded_scale_word(const coded &m, size_t i)
{
    return m.form.scale == SCALE_F32 ? ((const uint32_t *)m.scales)[i] : m.scales[i];
}

__device__ static inline float scale_of_word(enum scale_type type, uint32_t word)
{
    return __uint_as_float(type == SCALE_F32 ? word : word == 0 ? 0x00400000u : word << 23);
}

/* Unscaled columns in order: from one word of 4-bit codes, or from two words of 8-bit codes. */
template <typename T, enum codes C>
__device__ static inline void codes_in_order(uint32_t (&to)[4], const uint32_t *word, uint32_t zero)
{
    if constexpr (bits_of_codes<C> == 8) {
        uint32_t low[2], high[2];
        code_pairs<T, C>::decode(low, word[0], zero);
        code_pairs<T, C>::decode(high, word[1], zero);
        to[0] = low[0], to[1] = low[1], to[2] = high[0], to[3] = high[1];
    } else {
        uint32_t p[4];
        code_pairs<T, C>::decode(p, word[0], zero);
        to[0] = codes_pick(p[0], p[1], 0x5410), to[1] = codes_pick(p[2], p[3], 0x5410);
        to[2] = codes_pick(p[0], p[1], 0x7632), to[3] = codes_pick(p[2], p[3], 0x7632);
    }
}

/* Columns in order. */
template <typename T, enum codes C>
__device__ static inline void codes_wide(uint32_t (&to)[4], const uint32_t *word, uint32_t zero, enum scale_type type,
                                         uint32_t scale)
{
    codes_in_order<T, C>(to, word, zero);
    if (C == CODES_E2M1 && type == SCALE_E8M0 && std::is_same<T, __nv_bfloat16>::value) { /* exact this way, too */
        uint32_t power = scale == 0 ? 0x0040u : scale << 7;
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i] = tensor_multiply<__nv_bfloat16>(to[i], power | power << 16);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = pair_times<T>(to[i], scale_of_word(type, scale));
}

#endif
