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
    int four;
    memcpy(&four, row + c / 2, sizeof four);
    __m128i pairs = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(four));
    pairs = _mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi16(pairs, 4)), _mm_set1_epi16(0x0f0f));
    return (FN(words))_mm256_cvtepu8_epi32(pairs);
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

/* A 256th of the values: as halves they differ from E4M3 by the bias of the exponent alone. */
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

/* Zero and scale of a row's group, as decode wants them. */
INLINE float FN(zero_of)(const struct product *m, int row, int group)
{
    return m->zeros != NULL ? (float)m->zeros[(size_t)row * m->n_groups + group] : (float)code_zero(m->form.codes);
}

INLINE float FN(scale_of)(const struct product *m, int row, int group)
{
    size_t i = (size_t)row * m->n_groups + group;
    float x = m->form.scale == SCALE_E8M0 ? e8m0_value(m->scales[i]) : ((const float *)(const void *)m->scales)[i];
    return m->form.codes == CODES_E4M3 ? 256 * x : x;
}

#if ISA == 512
/* There are 16 codes of 4 bits: the weights of a group as a table, and 16 of them looked up in it. */
TARGET INLINE FN(vec) FN(table_of)(enum codes codes, float zero, float scale)
{
    const FN(words) index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    FN(vec) values = codes == CODES_INT4 ? __builtin_convertvector((FN(ints))index, FN(vec)) : FN(decode_e2m1)(index);
    return (values - zero) * scale;
}

TARGET INLINE FN(vec) FN(look_up)(const uint8_t *row, FN(vec) table, size_t c)
{
    __m128i pairs = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(row + c / 2)));
    pairs = _mm_or_si128(pairs, _mm_slli_epi16(pairs, 4)); /* what is above an index is ignored */
    return (FN(vec))_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(pairs), (__m512)table);
}
#endif

/* tile (see matmul_isa.h) over whole rows of codes, whose groups are multiples of 16 columns. */
TARGET INLINE void FN(tile_codes)(float *sum, const float *const *x, const struct product *m, int r0, enum codes codes,
                                  int n_t, int n_cols)
{
    FN(vec) s[TILE_T][TILE_R][PARTS];
    const uint8_t *w[TILE_R];
    int row[TILE_R];
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        row[r] = r0 + r < m->rows ? r0 + r : m->rows - 1;
        w[r] = weight_row(m, row[r]);
        UNROLL for (int t = 0; t < n_t; t++)
        {
            UNROLL for (int p = 0; p < PARTS; p++) s[t][r][p] = (FN(vec)){0};
        }
    }
    for (int c = 0, group = 0; c < n_cols; group++) {
        int64_t next = ((int64_t)group + 1) * m->form.group - m->form.first;
        int end = next < n_cols ? (int)next : n_cols;
        float scale[TILE_R], zero[TILE_R];
        for (int r = 0; r < TILE_R; r++) {
            scale[r] = FN(scale_of)(m, row[r], group);
            zero[r] = FN(zero_of)(m, row[r], group);
        }
#if ISA == 512
        FN(vec) table[TILE_R];
        UNROLL for (int r = 0; r < TILE_R; r++) table[r] = FN(table_of)(codes, zero[r], scale[r]);
#endif
        for (; c < end; c += SUM_LANES) {
            UNROLL for (int p = 0; p < PARTS; p++)
            {
                FN(vec) weight[TILE_R];
                UNROLL for (int r = 0; r < TILE_R; r++)
                {
#if ISA == 512
                    if (codes == CODES_INT4 || codes == CODES_E2M1) {
                        weight[r] = FN(look_up)(w[r], table[r], (size_t)(c + p * LANES));
                        continue;
                    }
#endif
                    FN(vec) v = FN(decode)(w[r], codes, (size_t)(c + p * LANES));
                    if (codes == CODES_INT8 || codes == CODES_INT4)
                        v -= zero[r];
                    weight[r] = v * scale[r];
                }
                UNROLL for (int t = 0; t < n_t; t++)
                {
                    FN(vec) value = FN(load_f32)(x[t] + c + p * LANES);
                    UNROLL for (int r = 0; r < TILE_R; r++) s[t][r][p] += value * weight[r];
                }
            }
        }
    }
    UNROLL for (int t = 0; t < n_t; t++)
    {
        UNROLL for (int r = 0; r < TILE_R; r++)
        {
            UNROLL for (int p = 0; p < PARTS; p++) FN(store)(sum + ((t * TILE_R + r) * PARTS + p) * LANES, s[t][r][p]);
        }
    }
}

TARGET static void FN(stream_codes)(float *sum, const float *const *x, const struct product *m, int r0, int n_t,
                                    int n_cols)
{
    enum codes codes = m->form.codes;
    if (n_t == 1 && codes == CODES_E4M3)
        FN(tile_codes)(sum, x, m, r0, CODES_E4M3, 1, n_cols);
    else if (n_t == 1 && codes == CODES_INT8)
        FN(tile_codes)(sum, x, m, r0, CODES_INT8, 1, n_cols);
    else if (n_t == 1 && codes == CODES_INT4)
        FN(tile_codes)(sum, x, m, r0, CODES_INT4, 1, n_cols);
    else if (n_t == 1)
        FN(tile_codes)(sum, x, m, r0, CODES_E2M1, 1, n_cols);
    else if (codes == CODES_E4M3)
        FN(tile_codes)(sum, x, m, r0, CODES_E4M3, TILE_T, n_cols);
    else if (codes == CODES_INT8)
        FN(tile_codes)(sum, x, m, r0, CODES_INT8, TILE_T, n_cols);
    else if (codes == CODES_INT4)
        FN(tile_codes)(sum, x, m, r0, CODES_INT4, TILE_T, n_cols);
    else
        FN(tile_codes)(sum, x, m, r0, CODES_E2M1, TILE_T, n_cols);
}

/* Columns [begin, end), multiples of 16, of a row as floats. */
TARGET INLINE void FN(widen_row)(float *wide, const struct product *m, int row, enum codes codes, int begin, int end)
{
    const uint8_t *w = weight_row(m, row);
    for (int c = begin; c < end;) {
        int group = (int)(((int64_t)m->form.first + c) / m->form.group);
        int64_t next = ((int64_t)group + 1) * m->form.group - m->form.first;
        float scale = FN(scale_of)(m, row, group), zero = FN(zero_of)(m, row, group);
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
