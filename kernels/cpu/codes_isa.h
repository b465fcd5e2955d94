/* kernels/cpu/codes_isa.h - rows of quantised weights for one instruction set (see vector_isa.h); included by
 * matmul_isa.h. A weight is (code - zero) x scale, rounded once, in every path. */

/* LANES codes from column c on, a multiple of LANES, of a row: their indices. */
TARGET INLINE FN(words) FN(load_nibbles)(const uint8_t *row, size_t c)
{
#if ISA == 512
    __m128i pairs = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(row + c / 2)));
    pairs = _mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi16(pairs, 4)), _mm_set1_epi16(0x0f0f));
    return (FN(words))_mm512_cvtepu8_epi32(pairs);
#elif ISA == 256
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    int four;
    memcpy(&four, row + c / 2, sizeof four);
    return (FN(words))_mm256_srlv_epi32(_mm256_set1_epi32(four), shifts) & 15;
#else
    FN(words) w;
    for (size_t l = 0; l < LANES; l++)
        w[l] = row[(c + l) / 2] >> ((c + l) % 2 * 4) & 15;
    return w;
#endif
}

TARGET INLINE FN(vec) FN(decode_e2m1)(FN(words) index)
{
#if ISA == 512
    const __m512 values = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    return (FN(vec))_mm512_permutexvar_ps((__m512i)index, values);
#elif ISA == 256
    const __m256 values = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
    FN(words) magnitude = (FN(words))_mm256_permutevar8x32_ps(values, (__m256i)index);
    return (FN(vec))(magnitude ^ (index & 8) << 28);
#else
    FN(vec) v;
    for (int l = 0; l < LANES; l++)
        v[l] = code_value(CODES_E2M1, index[l]);
    return v;
#endif
}

/* 1/256 of the values: as f16 they differ from E4M3 only in the exponent's bias. */
TARGET INLINE FN(vec) FN(decode_e4m3)(const uint8_t *p)
{
    uint16_t half[LANES];
    for (int l = 0; l < LANES; l++)
        half[l] = (uint16_t)((p[l] & 0x80) << 8 | (p[l] & 0x7f) << 7);
    return FN(load_f16)(half);
}

TARGET INLINE FN(vec) FN(decode)(const uint8_t *row, enum codes codes, size_t c)
{
    if (codes == CODES_E4M3) {
#if ISA == 512
        __m256i h = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(row + c))); /* the sign twice, too */
        return (FN(vec))_mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(h, 7), _mm256_set1_epi16((short)0xbfff)));
#elif ISA == 256
        __m128i h = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(row + c)));
        return (FN(vec))_mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(h, 7), _mm_set1_epi16((short)0xbfff)));
#else
        return FN(decode_e4m3)(row + c);
#endif
    }
    if (codes == CODES_INT8) {
#if ISA == 512
        return (FN(vec))_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(row + c))));
#elif ISA == 256
        return (FN(vec))_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(row + c))));
#else
        FN(vec) v;
        for (size_t l = 0; l < LANES; l++)
            v[l] = row[c + l];
        return v;
#endif
    }
    FN(words) index = FN(load_nibbles)(row, c);
    return codes == CODES_E2M1 ? FN(decode_e2m1)(index) : __builtin_convertvector((FN(ints))index, FN(vec));
}

/* Scales and zeros, in the form that decode takes, of n groups of a row from `group` on, at most m->n_groups. */
TARGET INLINE void FN(take_scales)(float *scale, float *zero, const struct product *m, int row, int group, int n)
{
    size_t first = (size_t)row * m->n_groups + group;
    float factor = m->form.codes == CODES_E4M3 ? 256 : 1, same = (float)code_zero(m->form.codes);
    const float *floats = (const float *)(const void *)m->scales + first;
    for (int i = 0; i < n; i++)
        scale[i] = factor * (m->form.scale == SCALE_E8M0 ? e8m0_value(m->scales[first + i]) : floats[i]);
    for (int i = 0; i < n; i++)
        zero[i] = m->zeros != NULL ? (float)m->zeros[first + i] : same;
}

/* Codes of 4 bits are looked up in a table of the group's 16 weights. The same eight bytes in every 64-bit lane,
 * shifted by 4 i bits in lane i, have code i in the low bits of the first half and code i + 8 in those of the second
 * half. Activations are permuted into this order, too, and the sums are permuted back at the end. */
#if ISA == 512
TARGET INLINE FN(vec) FN(table_of)(enum codes codes, float zero, float scale)
{
    const FN(words) index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    if (codes == CODES_E2M1)
        return FN(decode_e2m1)(index) * scale;
    return (__builtin_convertvector((FN(ints))index, FN(vec)) - zero) * scale;
}

TARGET INLINE FN(vec) FN(look_up)(const uint8_t *row, FN(vec) table, size_t c)
{
    const __m512i shifts = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
    int64_t eight;
    memcpy(&eight, row + c / 2, sizeof eight);
    __m512i index = _mm512_srlv_epi64(_mm512_set1_epi64(eight), shifts); /* bits above the fourth are ignored */
    return (FN(vec))_mm512_permutexvar_ps(index, (__m512)table);
}

TARGET INLINE FN(vec) FN(deal)(FN(vec) v)
{
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return (FN(vec))_mm512_permutexvar_ps(order, (__m512)v);
}

TARGET INLINE FN(vec) FN(put_back)(FN(vec) v)
{
    const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return (FN(vec))_mm512_permutexvar_ps(order, (__m512)v);
}
#endif

/* Are these codes, a compile-time constant, looked up in tables? */
INLINE bool FN(looks_up)(enum codes codes)
{
    return ISA == 512 && code_bits(codes) == 4;
}

/* The weights of TILE_R rows in a group. */
struct FN(group) {
    float scale[TILE_R], zero[TILE_R];
#if ISA == 512
    FN(vec) table[TILE_R];
#endif
};

#define SCALES     64 /* columns of a row that are converted at once */
#define LINE_BYTES 64 /* bytes loaded together */

/* Scales and zeros of the rows of a tile, and a group, whose scales and zeros are number i of these. */
struct FN(scales) {
    float scale[TILE_R][SCALES], zero[TILE_R][SCALES];
};

/* Is the zero of these codes always 128? Its product with a scale is exact then, so that a fused sum, code x scale -
 * 128 x scale, is rounded once, as (code - 128) x scale is. codes and zeros are constants. */
INLINE bool FN(fuses_zero)(enum codes codes, bool zeros)
{
    return ISA > 128 && codes == CODES_INT8 && !zeros;
}

TARGET INLINE void FN(open_group)(struct FN(group) * g, const struct FN(scales) * s, enum codes codes, bool zeros,
                                  int i)
{
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
#if ISA == 512
        if (FN(looks_up)(codes))
            g->table[r] = FN(table_of)(codes, s->zero[r][i], s->scale[r][i]);
#endif
        g->scale[r] = s->scale[r][i];
        g->zero[r] = FN(fuses_zero)(codes, zeros) ? -128 * s->scale[r][i] : s->zero[r][i];
    }
    (void)codes;
}

/* LANES weights of row r of the group from column c on, and activations in the same order. */
TARGET INLINE FN(vec)
    FN(weights_of)(const struct FN(group) * g, int r, const uint8_t *row, enum codes codes, bool zeros, size_t c)
{
#if ISA == 512
    if (FN(looks_up)(codes))
        return FN(look_up)(row, g->table[r], c);
#endif
    FN(vec) v = FN(decode)(row, codes, c);
    if (FN(fuses_zero)(codes, zeros))
        return v * g->scale[r] + g->zero[r];
    if (codes == CODES_INT8 || codes == CODES_INT4)
        v -= g->zero[r];
    return v * g->scale[r];
}

TARGET INLINE FN(vec) FN(values_of)(const float *x, enum codes codes)
{
    FN(vec) v = FN(load_f32)(x);
#if ISA == 512
    v = FN(looks_up)(codes) ? FN(deal)(v) : v;
#endif
    (void)codes;
    return v;
}

/* A sum with its lanes in the order of the columns. */
TARGET INLINE FN(vec) FN(sum_of)(FN(vec) v, enum codes codes)
{
#if ISA == 512
    v = FN(looks_up)(codes) ? FN(put_back)(v) : v;
#endif
    (void)codes;
    return v;
}

#if ISA >= 256
#include "kernels/cpu/lines_isa.h"
#endif

/* tile (see matmul_isa.h) over columns [begin, n_cols) of rows of codes, whose groups are multiples of 16 columns;
 * zeros, a constant: groups may have zeros of their own. */
TARGET INLINE void FN(tile_codes)(float *sum, const float *const *x, const struct product *m, const int *row,
                                  enum codes codes, bool zeros, int n_t, int begin, int n_cols)
{
    FN(vec) s[TILE_T][TILE_R][PARTS];
    struct FN(scales) scales;
    const uint8_t *w[TILE_R];
    int asked = begin, first = (int)(((int64_t)m->form.first + begin) / m->form.group);
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        w[r] = weight_row(m, row[r]);
        UNROLL for (int t = 0; t < n_t; t++)
        {
            UNROLL for (int p = 0; p < PARTS; p++) s[t][r][p] =
                begin == 0 ? (FN(vec)){0} : FN(values_of)(sum + ((t * TILE_R + r) * PARTS + p) * LANES, codes);
        }
    }
    int64_t next = (first + 1) * (int64_t)m->form.group - m->form.first;
    for (int c = begin, group = first; c < n_cols; group++, next += m->form.group) {
        int end = next < n_cols ? (int)next : n_cols, i = (group - first) % SCALES, left = m->n_groups - group;
        if (i == 0)
            for (int r = 0; r < TILE_R; r++)
                FN(take_scales)(scales.scale[r], scales.zero[r], m, row[r], group, left < SCALES ? left : SCALES);
        struct FN(group) g;
        FN(open_group)(&g, &scales, codes, zeros, i);
        while (c < end) {
            if (c >= asked) {
                UNROLL for (int r = 0; r < TILE_R; r++)
                    __builtin_prefetch(w[r] + CODES_AHEAD + (size_t)c * code_bits(codes) / 8);
                asked = c + LINE_BYTES * 8 / code_bits(codes);
            }
            for (int stop = asked < end ? asked : end; c < stop; c += SUM_LANES) {
                UNROLL for (int p = 0; p < PARTS; p++)
                {
                    FN(vec) weight[TILE_R];
                    UNROLL for (int r = 0; r < TILE_R; r++) weight[r] =
                        FN(weights_of)(&g, r, w[r], codes, zeros, (size_t)(c + p * LANES));
                    UNROLL for (int t = 0; t < n_t; t++)
                    {
                        FN(vec) value = FN(values_of)(x[t] + c + p * LANES, codes);
                        UNROLL for (int r = 0; r < TILE_R; r++) s[t][r][p] += value * weight[r];
                    }
                }
            }
        }
    }
    UNROLL for (int t = 0; t < n_t; t++)
    {
        UNROLL for (int r = 0; r < TILE_R; r++)
        {
            UNROLL for (int p = 0; p < PARTS; p++)
                FN(store)(sum + ((t * TILE_R + r) * PARTS + p) * LANES, FN(sum_of)(s[t][r][p], codes));
        }
    }
}

TARGET static void FN(stream_codes)(float *sum, const float *const *x, const struct product *m, const int *row, int n_t,
                                    int n_cols)
{
    enum codes codes = m->form.codes;
    int begin = 0;
#if ISA >= 256
    begin = n_t == 1 ? FN(stream_lines)(sum, x[0], m, row, n_cols) : 0;
#endif
    if (begin > 0 && begin == n_cols)
        return;
    if (n_t == 1 && codes == CODES_E4M3)
        FN(tile_codes)(sum, x, m, row, CODES_E4M3, true, 1, begin, n_cols);
    else if (n_t == 1 && codes == CODES_INT8 && m->zeros == NULL)
        FN(tile_codes)(sum, x, m, row, CODES_INT8, false, 1, begin, n_cols);
    else if (n_t == 1 && codes == CODES_INT8)
        FN(tile_codes)(sum, x, m, row, CODES_INT8, true, 1, begin, n_cols);
    else if (n_t == 1 && codes == CODES_INT4)
        FN(tile_codes)(sum, x, m, row, CODES_INT4, true, 1, begin, n_cols);
    else if (n_t == 1)
        FN(tile_codes)(sum, x, m, row, CODES_E2M1, true, 1, begin, n_cols);
    else if (codes == CODES_E4M3)
        FN(tile_codes)(sum, x, m, row, CODES_E4M3, true, TILE_T, 0, n_cols);
    else if (codes == CODES_INT8 && m->zeros == NULL)
        FN(tile_codes)(sum, x, m, row, CODES_INT8, false, TILE_T, 0, n_cols);
    else if (codes == CODES_INT8)
        FN(tile_codes)(sum, x, m, row, CODES_INT8, true, TILE_T, 0, n_cols);
    else if (codes == CODES_INT4)
        FN(tile_codes)(sum, x, m, row, CODES_INT4, true, TILE_T, 0, n_cols);
    else
        FN(tile_codes)(sum, x, m, row, CODES_E2M1, true, TILE_T, 0, n_cols);
}

/* Columns [begin, end), multiples of 16, of a row as floats. */
TARGET INLINE void FN(widen_row)(float *wide, const struct product *m, int row, enum codes codes, int begin, int end)
{
    const uint8_t *w = weight_row(m, row);
    for (int c = begin; c < end;) {
        int group = (int)(((int64_t)m->form.first + c) / m->form.group);
        int64_t next = ((int64_t)group + 1) * m->form.group - m->form.first;
        float scale, zero;
        FN(take_scales)(&scale, &zero, m, row, group, 1);
        for (int to = next < end ? (int)next : end; c < to; c += LANES) {
            FN(vec) v = FN(decode)(w, codes, (size_t)c);
            if (codes == CODES_INT8 || codes == CODES_INT4)
                v -= zero;
            FN(store)(wide + (c - begin), v * scale);
        }
    }
}

TARGET static void FN(widen_codes)(float *wide, const struct product *m, int row, int begin, int end)
{
    if (!m->aligned)
        for (int c = begin; c < end; c++)
            wide[c - begin] = code_weight(m, row, c);
    else if (m->form.codes == CODES_E4M3)
        FN(widen_row)(wide, m, row, CODES_E4M3, begin, end);
    else if (m->form.codes == CODES_INT8)
        FN(widen_row)(wide, m, row, CODES_INT8, begin, end);
    else if (m->form.codes == CODES_INT4)
        FN(widen_row)(wide, m, row, CODES_INT4, begin, end);
    else
        FN(widen_row)(wide, m, row, CODES_E2M1, begin, end);
}
