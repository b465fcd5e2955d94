/* kernels/cpu/lines_isa.h - products of one token with codes in whole cache lines, by AVX2 and AVX-512; included by
 * codes_isa.h. A group's scales and zeros are prepared at its first column, and all columns in between are unrolled,
 * since products of one token are bound by instructions. Sums as in tile_codes. Steps are of SUM_LANES columns. */

/* Steps of a line. */
INLINE int FN(line_steps)(enum codes codes)
{
    return LINE_BYTES * 8 / code_bits(codes) / SUM_LANES;
}

/* Steps per group if a group is a part of a line; LINE_STEPS if groups are whole lines; 0: neither. */
INLINE int FN(group_steps)(const struct product *m)
{
    int steps = FN(line_steps)(m->form.codes), line = steps * SUM_LANES;
    if (m->form.codes == CODES_INT8)
        return 0;
    if (m->n_groups == 1 || (m->form.group % line == 0 && m->form.first % line == 0))
        return steps;
    bool parts = m->form.group == SUM_LANES || m->form.group == 2 * SUM_LANES;
    return steps == 8 && parts && m->form.first == 0 ? m->form.group / SUM_LANES : 0;
}

#if ISA == 512
#include "kernels/cpu/lines_avx512.h"
#else
#include "kernels/cpu/lines_avx2.h"
#endif

/* Sums over the whole lines of rows of n_cols codes; returns the number of these columns. codes, type, zeros and steps,
 * those of a group (group_steps), are constants. */
TARGET INLINE int FN(sum_lines)(float *sum, const float *x, const struct product *m, const int *row, enum codes codes,
                                enum scale_type type, bool zeros, int steps, int n_cols)
{
    const int line_steps = FN(line_steps)(codes), n_lines = n_cols / (line_steps * SUM_LANES);
    FN(vec) s[TILE_R][PARTS];
    struct FN(line_group) group[TILE_R];
    struct FN(line_scales) scales;
    const uint8_t *line[TILE_R];
    int n = 0; /* groups begun so far */
    int64_t next = 0;
    FN(clear_scales)(&scales);
    UNROLL for (int r = 0; r < TILE_R; r++)
    {
        line[r] = weight_row(m, row[r]);
        group[r] = (struct FN(line_group)){0};
        UNROLL for (int p = 0; p < PARTS; p++) s[r][p] = (FN(vec)){0};
    }
    for (int i = 0; i < n_lines; i++, x += line_steps * SUM_LANES) {
        UNROLL for (int r = 0; r < TILE_R; r++) __builtin_prefetch(line[r] + CODES_AHEAD);
        bool begins = steps < line_steps || i * (int64_t)(line_steps * SUM_LANES) == next;
        size_t first = (size_t)(n % SCALES);
        if (begins && first == 0)
            FN(find_scales)(&scales, m, row, type, zeros, n);
        UNROLL for (int k = 0; k < line_steps; k += FN(steps_at_once)(codes))
        {
            if (k % steps == 0 && begins)
                FN(begin_group)(group, &scales, codes, type, zeros, first + (size_t)(k / steps));
            FN(step)(s, group, x, line, k, codes, type, zeros, steps);
        }
        n += begins ? line_steps / steps : 0;
        next = n * (int64_t)m->form.group - m->form.first;
        UNROLL for (int r = 0; r < TILE_R; r++) line[r] += LINE_BYTES;
    }
    UNROLL for (int r = 0; r < TILE_R; r++) UNROLL for (int p = 0; p < PARTS; p++)
        FN(store)(sum + (r * PARTS + p) * LANES, FN(sum_of)(s[r][p], codes));
    return n_lines * line_steps * SUM_LANES;
}

/* Computes the sums of one token's tile over whole lines; returns the number of these columns. 0: none, since groups do
 * not fit lines. */
TARGET static int FN(stream_lines)(float *sum, const float *x, const struct product *m, const int *row, int n_cols)
{
    int steps = FN(group_steps)(m);
    bool f32 = m->form.scale == SCALE_F32, zeros = m->zeros != NULL;
    enum codes codes = m->form.codes;
    if (codes == CODES_E4M3 && f32 && steps == 4 && FN(have_room)(m, row))
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
