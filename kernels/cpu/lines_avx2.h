/* kernels/cpu/lines_avx2.h - weights of groups and steps over lines, by AVX2; included by lines_isa.h. A step is a line
 * of one row after the other, since the constants of three rows do not fit into the registers together. */
#include "kernels/cpu/planes.h"

#include <math.h>

/* The scales, and powers of two or zeros, of the rows of a tile from a group on. */
struct FN(line_scales) {
    const float *at[TILE_R];
    const uint8_t *bytes[TILE_R];
};

/* The same of a row, from the line's group on. */
struct FN(line_group) {
    const float *scale;
    const uint8_t *bytes;
};

INLINE int FN(steps_at_once)(enum codes codes)
{
    return FN(line_steps)(codes);
}

INLINE void FN(clear_scales)(struct FN(line_scales) * s)
{
    *s = (struct FN(line_scales)){{0}, {0}};
}

TARGET INLINE void FN(find_scales)(struct FN(line_scales) * s, const struct product *m, const int *row,
                                   enum scale_type type, bool zeros, int group)
{
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        size_t first = (size_t)row[r] * m->n_groups + group;
        s->at[r] = type == SCALE_F32 ? (const float *)(const void *)m->scales + first : NULL;
        s->bytes[r] = zeros ? m->zeros + first : type == SCALE_E8M0 ? m->scales + first : NULL;
    }
}

TARGET INLINE void FN(begin_group)(struct FN(line_group) * group, const struct FN(line_scales) * s, enum codes codes,
                                   enum scale_type type, bool zeros, size_t i)
{
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        group[r].scale = type == SCALE_F32 ? s->at[r] + i : NULL;
        group[r].bytes = zeros || type == SCALE_E8M0 ? s->bytes[r] + i : NULL;
    }
    (void)codes;
}

/* The numbers of 32 codes of E2M1. Pairs of bytes that are 4 apart are loaded twice: an even pair of them has two codes
 * 8 columns apart in its low halves, the odd one after it the next two in its high halves. */
TARGET INLINE void FN(decode_e2m1s)(FN(vec) * out, const uint8_t *in, const struct planes *planes)
{
    const __m256i order = _mm256_setr_epi8(0, 4, 0, 4, 1, 5, 1, 5, 8, 12, 8, 12, 9, 13, 9, 13, 2, 6, 2, 6, 3, 7, 3, 7,
                                           10, 14, 10, 14, 11, 15, 11, 15);
    __m256i pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)in)), order);
    __m256i index = _mm256_blend_epi16(pairs, _mm256_srli_epi16(pairs, 4), 0xaa) & _mm256_set1_epi8(15);
    __m256i low = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)planes->low));
    __m256i high = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)planes->high));
    low = _mm256_shuffle_epi8(low, index);
    high = _mm256_shuffle_epi8(high, index);
    FN(words) first = (FN(words))_mm256_unpacklo_epi8(low, high), last = (FN(words))_mm256_unpackhi_epi8(low, high);
    out[0] = (FN(vec))(first << 16);
    out[1] = (FN(vec))(first & 0xffff0000);
    out[2] = (FN(vec))(last << 16);
    out[3] = (FN(vec))(last & 0xffff0000);
}

/* Two of a kind, for even and for odd columns. */
#define IN_TURN(type, even, odd) ((type){even, odd, even, odd, even, odd, even, odd})
/* A float's exponent, such that the mantissa's bit n counts 1, and the 4 bits of the mantissa from there on. */
#define FIXED(n) ((127u + 23 - (n)) << 23 | 15u << (n))

/* 32 codes of INT4 less a zero. Each 32 bits have two bytes of codes, as in decode_e2m1s, below two of zeros: inverted
 * and masked they are the float 2^k + 15 - code. */
TARGET INLINE void FN(decode_int4s)(FN(vec) * out, const uint8_t *in, float zero)
{
    const __m256i order = _mm256_setr_epi8(0, 4, -1, -1, 0, 4, -1, -1, 1, 5, -1, -1, 1, 5, -1, -1, 2, 6, -1, -1, 2, 6,
                                           -1, -1, 3, 7, -1, -1, 3, 7, -1, -1);
    const FN(words) first = IN_TURN(FN(words), FIXED(0), FIXED(4)), second = IN_TURN(FN(words), FIXED(8), FIXED(12));
    UNROLL for (int i = 0; i < 4; i += 2)
    {
        int64_t eight;
        memcpy(&eight, in + 4 * i, sizeof eight);
        __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi64x(eight), order);
        out[i] =
            IN_TURN(FN(vec), 0x1p23f + 15, 0x1p19f + 15) - zero - (FN(vec))_mm256_andnot_si256(bytes, (__m256i)first);
        out[i + 1] =
            IN_TURN(FN(vec), 0x1p15f + 15, 0x1p11f + 15) - zero - (FN(vec))_mm256_andnot_si256(bytes, (__m256i)second);
    }
}

/* 2^-120 of the numbers of 32 codes of E4M3: as floats they differ only in the exponent's bias, those without an
 * exponent, too. These are subnormal floats then, which AMD's processors multiply about as fast as others. Intel's take
 * some 150 cycles for one: of normally distributed weights whose largest has the largest code they are one in 10,000,
 * but where scales of about 1 leave the codes small there may be many. */
TARGET INLINE void FN(decode_e4m3s)(FN(vec) * out, const uint8_t *in)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(in + i * LANES))); /* many signs */
        out[i] = (FN(vec))_mm256_and_si256(_mm256_slli_epi32(wide, 20), _mm256_set1_epi32((int)0x87ffffff));
    }
}

#define E4M3_FACTOR 0x1p120f /* what decode_e4m3s leaves to the scale */

/* Can all scales of a tile's rows be multiplied by that? */
TARGET INLINE bool FN(have_room)(const struct product *m, const int *row)
{
    bool all = true;
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        const float *scale = (const float *)(const void *)m->scales + (size_t)row[r] * m->n_groups;
        for (int i = 0; i < m->n_groups; i++)
            all &= fabsf(scale[i]) < 0x1p8f;
    }
    return all;
}

/* 32 numbers from column c of a row's line on; of 4 bits they are less the zero and times the power of two, which
 * byte g says. */
TARGET INLINE void FN(decode_32)(FN(vec) * out, const uint8_t *line, size_t c, enum codes codes, enum scale_type type,
                                 bool zeros, const uint8_t *bytes, int g)
{
    if (codes == CODES_E2M1)
        FN(decode_e2m1s)(out, line + c / 2, &e2m1_planes[type == SCALE_E8M0 ? bytes[g] : 127]);
    else if (codes == CODES_INT4)
        FN(decode_int4s)(out, line + c / 2, (float)(zeros ? bytes[g] : code_zero(codes)));
    else
        FN(decode_e4m3s)(out, line + c);
}

/* Adds a line of a row. steps: those of a group. */
TARGET INLINE void FN(add_line)(FN(vec) * sum, struct FN(line_group) group, const float *x, const uint8_t *line,
                                enum codes codes, enum scale_type type, bool zeros, int steps)
{
    UNROLL for (int k = 0; k < FN(line_steps)(codes); k += 2)
    {
        FN(vec) weight[4];
        FN(decode_32)(weight, line, (size_t)k * SUM_LANES, codes, type, zeros, group.bytes, k / steps);
        UNROLL for (int i = 0; i < 4; i++)
        {
            if (type == SCALE_F32)
                weight[i] *= (codes == CODES_E4M3 ? E4M3_FACTOR : 1) * group.scale[(k + i / 2) / steps];
            sum[i % 2] += FN(load_f32)(x + k * SUM_LANES + i * LANES) * weight[i];
        }
    }
}

TARGET INLINE void FN(step)(FN(vec) (*sum)[PARTS], const struct FN(line_group) * group, const float *x,
                            const uint8_t *const *line, int k, enum codes codes, enum scale_type type, bool zeros,
                            int steps)
{
    UNROLL for (int r = 0; r < TILE_R; r++) FN(add_line)(sum[r], group[r], x, line[r], codes, type, zeros, steps);
    (void)k;
}
