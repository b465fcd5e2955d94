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

/* Prefetch the weights this many bytes after those at column c of each row. type is a constant. */
TARGET INLINE void FN(ask)(const void *const *w, enum dtype type, size_t c, size_t ahead)
{
    UNROLL for (int r = 0; r < TILE_R; r++)
        __builtin_prefetch((const char *)w[r] + ahead + c * dtype_bytes(type), 0, 3);
}

/* Add columns [0, n_cols), a multiple of 16, to the sums [n_t][TILE_R][16]; x, w: pointers to rows. n_t and type are
 * constants. ahead: prefetch distance in bytes; 0, a constant: weights are in a cache. fresh: the sums start here. */
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

/* The remaining columns after the last 16, padded with zeros. */
TARGET static void FN(tail)(float *sum, const float *const *x, const struct product *m, const int *row, int begin,
                            int end, int n_t)
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
        w_row[r] = w_end[r];
        for (int c = begin; c < end; c++)
            w_end[r][c - begin] = m->form.codes != CODES_NONE ? code_weight(m, row[r], c)
                                                              : dtype_load(weight_row(m, row[r]), m->type, (size_t)c);
    }
    if (n_t == 1)
        FN(tile)(sum, x_row, w_row, DTYPE_F32, 1, SUM_LANES, 0, begin == 0);
    else
        FN(tile)(sum, x_row, w_row, DTYPE_F32, TILE_T, SUM_LANES, 0, begin == 0);
}

/* Whole rows at once, with weights going from memory to registers: for few tokens. */
TARGET static void FN(stream)(float *sum, const float *const *x, const void *const *w, enum dtype type, int n_t,
                              int n_cols)
{
    if (n_t == 1 && type == DTYPE_F32)
        FN(tile)(sum, x, w, DTYPE_F32, 1, n_cols, AHEAD, true);
    else if (n_t == 1 && type == DTYPE_BF16)
        FN(tile)(sum, x, w, DTYPE_BF16, 1, n_cols, AHEAD, true);
    else if (n_t == 1)
        FN(tile)(sum, x, w, DTYPE_F16, 1, n_cols, AHEAD, true);
    else if (type == DTYPE_F32)
        FN(tile)(sum, x, w, DTYPE_F32, TILE_T, n_cols, AHEAD, true);
    else if (type == DTYPE_BF16)
        FN(tile)(sum, x, w, DTYPE_BF16, TILE_T, n_cols, AHEAD, true);
    else
        FN(tile)(sum, x, w, DTYPE_F16, TILE_T, n_cols, AHEAD, true);
}

/* Converts columns [begin, end) of n_r rows from r0 on to float; whole tiles, padded by repeating the last row. */
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

/* Pointers to TILE_T activations; beyond the last token it is repeated. */
static void FN(point)(const float **x, const struct product *m, int t)
{
    for (int i = 0; i < TILE_T; i++)
        x[i] = m->x + x_row(m, t + i < m->n_tokens ? t + i : m->n_tokens - 1) * m->x_pitch;
}

/* The rows of a tile, this many apart; beyond `end` the last one is repeated. Returns the number of real rows. */
static int FN(choose)(int *row, int first, int apart, int end)
{
    int n = 0;
    for (int r = 0; r < TILE_R; r++) {
        row[r] = first + r * apart < end ? first + r * apart : end - 1;
        n += first + r * apart < end;
    }
    return n;
}

/* The sums of the tile whose first token and row are t and r of the block: one tile after the other. */
static float *FN(tile_sum)(float *sum, int t, int r)
{
    return sum + (r / TILE_R * (TOKENS / TILE_T) + t / TILE_T) * (TILE_T * TILE_R * SUM_LANES);
}

/* Prefetch for the next conversion, after columns [begin, end): bytes [at, at + n) of the following columns in TILE_R
 * rows of a block from r on. */
TARGET INLINE void FN(ask_next)(const struct product *m, int r, int end, size_t at, size_t n)
{
    bool same = end < m->cols / SUM_LANES * SUM_LANES; /* rows */
    for (int i = r; i < r + TILE_R; i++) {
        const char *w = (const char *)weight_row(m, same ? i : i + ROWS) + (same ? row_bytes(m, end) : 0);
        for (size_t b = at; b < at + n; b += LINE_BYTES)
            __builtin_prefetch(w + b, 0, 2);
    }
}

/* Add columns [begin, end) to the sums of the block of n_t tokens and n_r rows. */
TARGET static void FN(columns)(float *sum, const struct product *m, int t0, int n_t, int r0, int n_r, int begin,
                               int end)
{
    _Alignas(64) float wide[TILE_R][COLUMNS]; /* stays in the first-level cache */
    /* Every tile of tokens prefetches this many bytes of the next columns, so that all have arrived after the last
     * tile. */
    size_t n_tiles = (size_t)(n_t + TILE_T - 1) / TILE_T, lines = row_bytes(m, COLUMNS) / LINE_BYTES;
    size_t step = (lines + n_tiles - 1) / n_tiles * LINE_BYTES;
    for (int r = 0; r < n_r; r += TILE_R) {
        FN(widen)(wide, m, r0 + r, min(TILE_R, n_r - r), begin, end);
        for (int t = 0; t < n_t; t += TILE_T) {
            const float *x[TILE_T];
            const void *w[TILE_R];
            FN(point)(x, m, t0 + t);
            for (int i = 0; i < TILE_T; i++)
                x[i] += begin;
            for (int i = 0; i < TILE_R; i++)
                w[i] = wide[i];
            FN(ask_next)(m, r0 + r, end, (size_t)(t / TILE_T) * step, step);
            FN(tile)(FN(tile_sum)(sum, t, r), x, w, DTYPE_F32, TILE_T, end - begin, 0, begin == 0);
        }
    }
}

/* Add up the lanes of a tile of n_t tokens and n_r rows, then the rest of the formula. */
static void FN(finish)(const struct product *m, const float *sum, int t0, int n_t, const int *row, int n_r)
{
    float y[TILE_T * TILE_R + 3] = {0};
    for (int i = 0; i < n_t * TILE_R; i += 4)
        add_lanes(y + i, sum + i * SUM_LANES);
    for (int t = 0; t < n_t; t++) {
        float *out = m->out + out_row(m, t0 + t) * m->out_pitch;
        for (int r = 0; r < n_r; r++) {
            float value = y[t * TILE_R + r];
            if (m->bias)
                value += dtype_load(m->bias->data, m->bias->type, m->first_bias + (size_t)row[r]);
            out[row[r]] = m->accumulate ? out[row[r]] + value : value;
        }
    }
}

/* Few tokens [t0, t0 + n_t) and rows [r0, r0 + n_r). The rows of a tile are far apart, and each tile's rows follow
 * those of the previous one: memory is read in as many sequential streams as a tile has rows. */
TARGET static void FN(few)(const struct product *m, int t0, int n_t, int r0, int n_r)
{
    _Alignas(64) float sum[(TILE_T * TILE_R + 3) * SUM_LANES];
    int whole = m->cols / SUM_LANES * SUM_LANES, apart = (n_r + TILE_R - 1) / TILE_R, row[TILE_R];
    for (int i = 0; i < apart; i++) {
        int tile_r = FN(choose)(row, r0 + i, apart, r0 + n_r);
        const void *w[TILE_R];
        for (int r = 0; r < TILE_R; r++)
            w[r] = weight_row(m, row[r]);
        for (int t = t0; t < t0 + n_t; t += TILE_T) {
            const float *x[TILE_T];
            int tile_t = min(TILE_T, t0 + n_t - t);
            FN(point)(x, m, t);
            if (m->form.codes != CODES_NONE)
                FN(stream_codes)(sum, x, m, row, tile_t, whole);
            else
                FN(stream)(sum, x, w, m->type, tile_t, whole);
            if (whole < m->cols)
                FN(tail)(sum, x, m, row, whole, m->cols, tile_t);
            FN(finish)(m, sum, t, tile_t, row, tile_r);
        }
    }
}

/* Tokens [t0, t0 + n_t) and rows [r0, r0 + n_r). */
TARGET static void FN(block)(const struct product *m, int t0, int n_t, int r0, int n_r)
{
    _Alignas(64) float sum[(TOKENS * ROWS + 3) * SUM_LANES];
    int whole = m->cols / SUM_LANES * SUM_LANES, row[TILE_R];
    for (int begin = 0; begin < whole; begin += COLUMNS)
        FN(columns)(sum, m, t0, n_t, r0, n_r, begin, begin + COLUMNS < whole ? begin + COLUMNS : whole);
    for (int r = 0; r < n_r; r += TILE_R) {
        int tile_r = FN(choose)(row, r0 + r, 1, r0 + n_r);
        for (int t = 0; t < n_t; t += TILE_T) {
            int tile_t = n_t - t < TILE_T ? n_t - t : TILE_T;
            float *s = FN(tile_sum)(sum, t, r);
            const float *x[TILE_T];
            FN(point)(x, m, t0 + t);
            if (whole < m->cols)
                FN(tail)(s, x, m, row, whole, m->cols, tile_t);
            FN(finish)(m, s, t0 + t, tile_t, row, tile_r);
        }
    }
}
