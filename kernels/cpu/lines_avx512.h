/* kernels/cpu/lines_avx512.h - weights of groups and steps over columns, by AVX-512; included by lines_isa.h. */

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

/* A row's group: its 16 weights, or the factor of the numbers that 8 bits stand for. */
struct FN(line_group) {
    FN(vec) v;
};

INLINE int FN(steps_at_once)(enum codes codes)
{
    return codes == CODES_E4M3 ? 2 : 1;
}

INLINE void FN(clear_scales)(struct FN(line_scales) * s)
{
    UNROLL for (int r = 0; r < TILE_R; r++) s->at[r] = NULL;
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

/* Can all scales of a tile's rows be multiplied by the factor of E4M3, 256? All below 2^120 can. */
INLINE bool FN(have_room)(const struct product *m, const int *row)
{
    (void)m;
    (void)row;
    return true;
}

/* Group i of the scales, for each row. */
TARGET INLINE void FN(begin_group)(struct FN(line_group) * group, const struct FN(line_scales) * s, enum codes codes,
                                   enum scale_type type, bool zeros, size_t i)
{
    const FN(vec) index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        float scale = type == SCALE_F32 ? s->at[r][i] : s->scale[r][i];
        if (codes == CODES_E4M3)
            group[r].v = (FN(vec))_mm512_set1_ps(256 * scale);
        else if (zeros)
            group[r].v = (index - s->zero[r][i]) * scale;
        else
            group[r].v = FN(table_of)(codes, (float)code_zero(codes), scale);
    }
}

/* 16 columns of 4 bits, from column c of a line on, at line[r] and x. */
TARGET INLINE void FN(step_nibbles)(FN(vec) (*sum)[PARTS], const struct FN(line_group) * group, const float *x,
                                    const uint8_t *const *line, size_t c)
{
    FN(vec) value = FN(deal)(FN(load_f32)(x + c));
    UNROLL for (int r = 0; r < TILE_R; r++) sum[r][0] += value * FN(look_up)(line[r], group[r].v, c);
}

/* 32 columns of E4M3, likewise. */
TARGET INLINE void FN(step_e4m3)(FN(vec) (*sum)[PARTS], const struct FN(line_group) * group, const float *x,
                                 const uint8_t *const *line, size_t c)
{
    FN(vec) low = FN(load_f32)(x + c), high = FN(load_f32)(x + c + LANES);
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        __m512i h = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(line[r] + c)));
        h = _mm512_and_si512(_mm512_slli_epi16(h, 7), _mm512_set1_epi16((short)0xbfff));
        sum[r][0] += low * ((FN(vec))_mm512_cvtph_ps(_mm512_castsi512_si256(h)) * group[r].v);
        sum[r][0] += high * ((FN(vec))_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)) * group[r].v);
    }
}

TARGET INLINE void FN(step)(FN(vec) (*sum)[PARTS], const struct FN(line_group) * group, const float *x,
                            const uint8_t *const *line, int k, enum codes codes, enum scale_type type, bool zeros,
                            int steps)
{
    if (codes == CODES_E4M3)
        FN(step_e4m3)(sum, group, x, line, (size_t)k * SUM_LANES);
    else
        FN(step_nibbles)(sum, group, x, line, (size_t)k * SUM_LANES);
    (void)type;
    (void)zeros;
    (void)steps;
}
