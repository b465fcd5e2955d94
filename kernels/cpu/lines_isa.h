/* kernels/cpu/lines_isa.h - products of one token with codes in whole cache lines, by AVX-512; included by codes_isa.h.
 * A group's scales and zeros are prepared at its first column, and all columns in between are unrolled, since products
 * of one token are bound by instructions. Sums as in tile_codes. */

/* Vectors of a line. */
INLINE int FN(line_steps)(enum codes codes)
{
    return LINE_BYTES * 8 / code_bits(codes) / LANES;
}

/* Vectors per group if a group is a part of a line; LINE_STEPS if groups are whole lines; 0: neither. */
INLINE int FN(group_steps)(const struct product *m)
{
    int steps = FN(line_steps)(m->form.codes), line = steps * LANES;
    if (m->form.codes == CODES_INT8)
        return 0;
    if (m->n_groups == 1 || (m->form.group % line == 0 && m->form.first % line == 0))
        return steps;
    bool parts = m->form.group == LANES || m->form.group == 2 * LANES;
    return steps == 8 && parts && m->form.first == 0 ? m->form.group / LANES : 0;
}

/* Scales and zeros of the rows of a tile, from a group on: SCALES of them, or as many as exist. */
struct FN(line_scales) {
    const float *at[TILE_R]; /* their addresses as floats */
    float scale[TILE_R][SCALES], zero[TILE_R][SCALES];
};

/* n bytes, at most LANES, as floats. */
TARGET INLINE __m512i FN(widen_bytes)(const uint8_t *in, int n)
{
    __mmask16 there = (__mmask16)(n < LANES ? (1u << n) - 1 : 0xffffu);
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(there, in));
}

TARGET INLINE void FN(widen_zeros)(float *out, const uint8_t *in, int n)
{
    for (int i = 0; i < n; i += LANES)
        FN(store)(out + i, (FN(vec))_mm512_cvtepi32_ps(FN(widen_bytes)(in + i, n - i)));
}

/* Powers of two (e8m0_value); bytes 0 and 255 are rare and need other bits. */
TARGET INLINE void FN(widen_powers)(float *out, const uint8_t *in, int n)
{
    for (int i = 0; i < n; i += LANES) {
        __m512i b = FN(widen_bytes)(in + i, n - i);
        FN(store)(out + i, (FN(vec))_mm512_slli_epi32(b, 23));
    }
    for (int i = 0; i < n; i += SCALES) {
        __mmask64 there = n - i < SCALES ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;
        __m512i b = _mm512_maskz_loadu_epi8(there, in + i);
        __mmask64 rare = _mm512_mask_cmpeq_epi8_mask(there, b, _mm512_setzero_si512()) |
                         _mm512_mask_cmpeq_epi8_mask(there, b, _mm512_set1_epi8(-1));
        for (; rare != 0; rare &= rare - 1)
            out[i + __builtin_ctzll(rare)] = e8m0_value(in[i + __builtin_ctzll(rare)]);
    }
}

TARGET INLINE void FN(find_scales)(struct FN(line_scales) * s, const struct product *m, const int *row,
                                   enum scale_type type, bool zeros, int group)
{
    int n = min(SCALES, m->n_groups - group);
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        size_t first = (size_t)row[r] * m->n_groups + group;
        if (type == SCALE_F32)
            s->at[r] = (const float *)(const void *)m->scales + first;
        else
            FN(widen_powers)(s->scale[r], m->scales + first, n);
        if (zeros)
            FN(widen_zeros)(s->zero[r], m->zeros + first, n);
    }
}

/* For each row the 16 weights of group i of the scales; for 8 bits the factor of the values that decode() returns. */
TARGET INLINE void FN(begin_group)(FN(vec) * group, const struct FN(line_scales) * s, enum codes codes,
                                   enum scale_type type, bool zeros, int i)
{
    const FN(vec) index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        float scale = type == SCALE_F32 ? s->at[r][i] : s->scale[r][i];
        if (codes == CODES_E4M3)
            group[r] = (FN(vec))_mm512_set1_ps(256 * scale);
        else if (zeros)
            group[r] = (index - s->zero[r][i]) * scale;
        else
            group[r] = FN(table_of)(codes, (float)code_zero(codes), scale);
    }
}

/* 16 columns of 4 bits, from column c of a line on, at line[r] and x. */
TARGET INLINE void FN(step_nibbles)(FN(vec) * sum, const FN(vec) * group, const float *x, const uint8_t *const *line,
                                    size_t c)
{
    FN(vec) value = FN(deal)(FN(load_f32)(x + c));
    UNROLL for (int r = 0; r < TILE_R; r++) sum[r] += value * FN(look_up)(line[r], group[r], c);
}

/* 32 columns of E4M3, likewise. */
TARGET INLINE void FN(step_e4m3)(FN(vec) * sum, const FN(vec) * group, const float *x, const uint8_t *const *line,
                                 size_t c)
{
    FN(vec) low = FN(load_f32)(x + c), high = FN(load_f32)(x + c + LANES);
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        __m512i h = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(line[r] + c)));
        h = _mm512_and_si512(_mm512_slli_epi16(h, 7), _mm512_set1_epi16((short)0xbfff));
        sum[r] += low * ((FN(vec))_mm512_cvtph_ps(_mm512_castsi512_si256(h)) * group[r]);
        sum[r] += high * ((FN(vec))_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)) * group[r]);
    }
}

/* Sums over the whole lines of rows of n_cols codes; returns the number of these columns. codes, type, zeros and steps,
 * the vectors of a group (group_steps), are constants. */
TARGET INLINE int FN(sum_lines)(float *sum, const float *x, const struct product *m, const int *row, enum codes codes,
                                enum scale_type type, bool zeros, int steps, int n_cols)
{
    const int line_steps = FN(line_steps)(codes), n_lines = n_cols / (line_steps * LANES);
    FN(vec) s[TILE_R], group[TILE_R];
    struct FN(line_scales) scales;
    const uint8_t *line[TILE_R];
    int n = 0; /* groups begun so far */
    int64_t next = 0;
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        line[r] = weight_row(m, row[r]);
        scales.at[r] = NULL;
        s[r] = group[r] = (FN(vec)){0};
    }
    for (int i = 0; i < n_lines; i++, x += line_steps * LANES) {
        UNROLL for (int r = 0; r < TILE_R; r++) __builtin_prefetch(line[r] + CODES_AHEAD);
        bool begins = steps < line_steps || i * (int64_t)(line_steps * LANES) == next;
        int first = n % SCALES;
        if (begins && first == 0)
            FN(find_scales)(&scales, m, row, type, zeros, n);
        UNROLL for (int k = 0; k < line_steps; k += codes == CODES_E4M3 ? 2 : 1)
        {
            if (k % steps == 0 && begins)
                FN(begin_group)(group, &scales, codes, type, zeros, first + k / steps);
            if (codes == CODES_E4M3)
                FN(step_e4m3)(s, group, x, line, (size_t)(k * LANES));
            else
                FN(step_nibbles)(s, group, x, line, (size_t)(k * LANES));
        }
        n += begins ? line_steps / steps : 0;
        next = n * (int64_t)m->form.group - m->form.first;
        UNROLL for (int r = 0; r < TILE_R; r++) line[r] += LINE_BYTES;
    }
    UNROLL for (int r = 0; r < TILE_R; r++) FN(store)(sum + r * LANES, FN(sum_of)(s[r], codes));
    return n_lines * line_steps * LANES;
}

/* Computes the sums of one token's tile over whole lines; returns the number of these columns. 0: none, since groups do
 * not fit lines. */
TARGET static int FN(stream_lines)(float *sum, const float *x, const struct product *m, const int *row, int n_cols)
{
    int steps = FN(group_steps)(m);
    bool f32 = m->form.scale == SCALE_F32, zeros = m->zeros != NULL;
    enum codes codes = m->form.codes;
    if (codes == CODES_E4M3 && f32 && steps == 4)
        return FN(sum_lines)(sum, x, m, row, CODES_E4M3, SCALE_F32, false, 4, n_cols);
    if (codes == CODES_INT4 && f32 && steps == 8)
        return zeros ? FN(sum_lines)(sum, x, m, row, CODES_INT4, SCALE_F32, true, 8, n_cols)
                     : FN(sum_lines)(sum, x, m, row, CODES_INT4, SCALE_F32, false, 8, n_cols);
    if (codes == CODES_INT4 && f32 && steps == 2)
        return zeros ? FN(sum_lines)(sum, x, m, row, CODES_INT4, SCALE_F32, true, 2, n_cols)
                     : FN(sum_lines)(sum, x, m, row, CODES_INT4, SCALE_F32, false, 2, n_cols);
    if (codes == CODES_E2M1 && !f32 && steps == 2)
        return FN(sum_lines)(sum, x, m, row, CODES_E2M1, SCALE_E8M0, false, 2, n_cols);
    if (codes == CODES_E2M1 && f32 && steps == 1)
        return FN(sum_lines)(sum, x, m, row, CODES_E2M1, SCALE_F32, false, 1, n_cols);
    return 0;
}
