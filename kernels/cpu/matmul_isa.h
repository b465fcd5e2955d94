/* kernels/cpu/matmul_isa.h - the matrix product for one instruction set (see vector_isa.h); matmul.c includes it once
 * for each. Both paths sum every element of the result in the same order: 16 lanes step through all the columns, then
 * the lanes are added (matmul.c: add_lanes). TILE_T tokens times TILE_R rows of sums fill the registers. */
#include "kernels/cpu/vector_isa.h"

#undef TILE_T
#undef TILE_R
#if ISA == 512
#define TILE_T 4 /* 24 sums, 6 weights, 1 activation: 31 of 32 registers */
#define TILE_R 6
#elif ISA == 256
#define TILE_T 2 /* 12 sums in 2 parts each .. 16 registers */
#define TILE_R 3
#else
#define TILE_T 1
#define TILE_R 3
#endif

#include "kernels/cpu/codes_isa.h"

/* Ask for the weights so many bytes behind those at column c of each row, a line of the cache at a time. type is a
 * constant. */
TARGET INLINE void FN(ask)(const void *const *w, enum dtype type, size_t c, size_t ahead)
{
    size_t at = c * dtype_bytes(type);
    if (at % 64 != 0)
        return;
    UNROLL for (int r = 0; r < TILE_R; r++) __builtin_prefetch((const char *)w[r] + ahead + at, 0, 3);
}

/* Add columns [0, n_cols), a multiple of 16, to the sums [n_t][TILE_R][16]; x, w: pointers to rows. n_t and type are
 * constants. ahead: bytes to the weights that are asked for meanwhile; 0, a constant: they are in a cache. fresh: the
 * sums start here. */
TARGET INLINE void FN(tile)(float *sum, const float *const *x, const void *const *w, enum dtype type, int n_t,
                            int n_cols, size_t ahead, bool fresh)
{
    FN(vec) s[TILE_T][TILE_R][PARTS];
    UNROLL for (int t = 0; t < n_t; t++)
    {
        UNROLL for (int r = 0; r < TILE_R; r++)
        {
            UNROLL for (int p = 0; p < PARTS; p++) s[t][r][p] =
                fresh ? (FN(vec)){0} : FN(load_f32)(sum + ((t * TILE_R + r) * PARTS + p) * LANES);
        }
    }
    for (size_t c = 0; c < (size_t)n_cols; c += SUM_LANES) {
        if (ahead > 0)
            FN(ask)(w, type, c, ahead);
        UNROLL for (int p = 0; p < PARTS; p++)
        {
            FN(vec) weight[TILE_R];
            UNROLL for (int r = 0; r < TILE_R; r++) weight[r] = FN(load)(w[r], type, c + p * LANES);
            UNROLL for (int t = 0; t < n_t; t++)
            {
                FN(vec) value = FN(load_f32)(x[t] + c + p * LANES);
                UNROLL for (int r = 0; r < TILE_R; r++) s[t][r][p] += value * weight[r];
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

/* The columns after the last whole 16, beside zeros. */
TARGET static void FN(tail)(float *sum, const float *const *x, const struct product *m, int r0, int begin, int end,
                            int n_t)
{
    float x_end[TILE_T][SUM_LANES] = {0}, w_end[TILE_R][SUM_LANES] = {0};
    const float *x_row[TILE_T];
    const void *w_row[TILE_R];
    for (int t = 0; t < TILE_T; t++) {
        x_row[t] = x_end[t];
        for (int c = begin; c < end; c++)
            x_end[t][c - begin] = x[t][c];
    }
    for (int r = 0; r < TILE_R; r++) {
        int row = r0 + r < m->rows ? r0 + r : m->rows - 1;
        w_row[r] = w_end[r];
        for (int c = begin; c < end; c++)
            w_end[r][c - begin] = m->form.codes != CODES_NONE ? code_weight(m, row, c)
                                                              : dtype_load(weight_row(m, row), m->type, (size_t)c);
    }
    if (n_t == 1)
        FN(tile)(sum, x_row, w_row, DTYPE_F32, 1, SUM_LANES, 0, begin == 0);
    else
        FN(tile)(sum, x_row, w_row, DTYPE_F32, TILE_T, SUM_LANES, 0, begin == 0);
}

/* Whole rows at once, weights going from memory to registers: what few tokens need. The next tile's rows are asked for
 * meanwhile: each begins a page or so, where the hardware's own prefetching starts anew. */
TARGET static void FN(stream)(float *sum, const float *const *x, const void *const *w, const struct product *m, int n_t,
                              int n_cols)
{
    size_t next = TILE_R * m->pitch;
    if (n_t == 1 && m->type == DTYPE_F32)
        FN(tile)(sum, x, w, DTYPE_F32, 1, n_cols, next, true);
    else if (n_t == 1 && m->type == DTYPE_BF16)
        FN(tile)(sum, x, w, DTYPE_BF16, 1, n_cols, next, true);
    else if (n_t == 1)
        FN(tile)(sum, x, w, DTYPE_F16, 1, n_cols, next, true);
    else if (m->type == DTYPE_F32)
        FN(tile)(sum, x, w, DTYPE_F32, TILE_T, n_cols, next, true);
    else if (m->type == DTYPE_BF16)
        FN(tile)(sum, x, w, DTYPE_BF16, TILE_T, n_cols, next, true);
    else
        FN(tile)(sum, x, w, DTYPE_F16, TILE_T, n_cols, next, true);
}

/* Columns [begin, end) of n_r rows from r0 on, as floats, side by side; whole tiles, the last row standing in. */
TARGET static void FN(widen)(float (*wide)[COLUMNS], const struct product *m, int r0, int n_r, int begin, int end)
{
    for (int r = 0; r < (n_r + TILE_R - 1) / TILE_R * TILE_R; r++) {
        int row = r0 + (r < n_r ? r : n_r - 1);
        const void *w = weight_row(m, row);
        if (m->form.codes != CODES_NONE) {
            FN(widen_codes)(wide[r], m, row, begin, end);
            continue;
        }
        for (int c = begin; c < end; c += LANES) {
            if (m->type == DTYPE_BF16)
                FN(store)(wide[r] + (c - begin), FN(load)(w, DTYPE_BF16, (size_t)c));
            else if (m->type == DTYPE_F16)
                FN(store)(wide[r] + (c - begin), FN(load)(w, DTYPE_F16, (size_t)c));
            else
                FN(store)(wide[r] + (c - begin), FN(load)(w, DTYPE_F32, (size_t)c));
        }
    }
}

/* Pointers to TILE_T activations and TILE_R weights; beyond the last token and row, that one again. */
static void FN(point)(const float **x, const void **w, const struct product *m, int t, int r)
{
    for (int i = 0; i < TILE_T; i++)
        x[i] = m->x + x_row(m, t + i < m->n_tokens ? t + i : m->n_tokens - 1) * m->x_pitch;
    for (int i = 0; i < TILE_R; i++)
        w[i] = weight_row(m, r + i < m->rows ? r + i : m->rows - 1);
}

/* The sums of the tile whose first token and row are t and r of the block: one tile after the other. */
static float *FN(tile_sum)(float *sum, int t, int r)
{
    return sum + (r / TILE_R * (TOKENS / TILE_T) + t / TILE_T) * (TILE_T * TILE_R * SUM_LANES);
}

/* Add columns [begin, end) to the sums of the block of n_t tokens and n_r rows. */
TARGET static void FN(columns)(float *sum, const struct product *m, int t0, int n_t, int r0, int n_r, int begin,
                               int end)
{
    _Alignas(64) float wide[ROWS][COLUMNS];
    FN(widen)(wide, m, r0, n_r, begin, end);
    for (int r = 0; r < n_r; r += TILE_R) {
        for (int t = 0; t < n_t; t += TILE_T) {
            const float *x[TILE_T];
            const void *w[TILE_R];
            FN(point)(x, w, m, t0 + t, r0 + r);
            for (int i = 0; i < TILE_T; i++)
                x[i] += begin;
            for (int i = 0; i < TILE_R; i++)
                w[i] = wide[r + i];
            FN(tile)(FN(tile_sum)(sum, t, r), x, w, DTYPE_F32, TILE_T, end - begin, 0, begin == 0);
        }
    }
}

/* Add up the lanes of a tile, then the rest of the formula. */
static void FN(finish)(const struct product *m, const float *sum, int t0, int n_t, int r0, int n_r)
{
    float y[TILE_T * TILE_R + 3];
    for (int i = 0; i < n_t * TILE_R; i += 4)
        add_lanes(y + i, sum + i * SUM_LANES);
    for (int t = 0; t < n_t; t++) {
        float *out = m->out + out_row(m, t0 + t) * m->out_pitch + r0;
        for (int r = 0; r < n_r; r++) {
            float value = y[t * TILE_R + r];
            if (m->bias)
                value += dtype_load(m->bias->data, m->bias->type, m->first_bias + (size_t)(r0 + r));
            out[r] = m->accumulate ? out[r] + value : value;
        }
    }
}

/* Tokens [t0, t0 + n_t) and rows [r0, r0 + n_r). */
TARGET static void FN(block)(const struct product *m, int t0, int n_t, int r0, int n_r)
{
    _Alignas(64) float sum[(TOKENS * ROWS + 3) * SUM_LANES];
    int whole = m->cols / SUM_LANES * SUM_LANES;
    bool coded = m->form.codes != CODES_NONE;
    bool few = whole == 0 || (coded ? n_t <= FEW_CODED && m->aligned : n_t <= FEW_TOKENS);
    for (int begin = 0; begin < whole && !few; begin += COLUMNS)
        FN(columns)(sum, m, t0, n_t, r0, n_r, begin, begin + COLUMNS < whole ? begin + COLUMNS : whole);
    for (int r = 0; r < n_r; r += TILE_R) {
        for (int t = 0; t < n_t; t += TILE_T) {
            const float *x[TILE_T];
            const void *w[TILE_R];
            float *s = FN(tile_sum)(sum, t, r);
            int tile_t = n_t - t < TILE_T ? n_t - t : TILE_T, tile_r = n_r - r < TILE_R ? n_r - r : TILE_R;
            FN(point)(x, w, m, t0 + t, r0 + r);
            if (few && coded)
                FN(stream_codes)(s, x, m, r0 + r, tile_t, whole);
            else if (few)
                FN(stream)(s, x, w, m, tile_t, whole);
            if (whole < m->cols)
                FN(tail)(s, x, m, r0 + r, whole, m->cols, tile_t);
            FN(finish)(m, s, t0 + t, tile_t, r0 + r, tile_r);
        }
    }
}
