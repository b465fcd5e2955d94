/* kernels/cpu/matmul.c - matrix products, also with the experts' matrices. One token: the weights stream at memory
 * speed. Many tokens: a block of weights is converted to float, and tiles of tokens by rows are accumulated in
 * registers. A result has the same bits in any batch, at any row and with any number of threads. Built with -O3
 * -ffp-contract=fast: the sums are meant to be fused. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/widest_isa.h"

#define FEW_TOKENS  12  /* tokens up to which weights go directly to registers (measured on a Cascade Lake Xeon) */
#define FEW_CODED   4   /* the same for quantised weights, which every tile of tokens dequantises again */
#define TOKENS      64  /* tokens of a block: a multiple of every TILE_T */
#define ROWS        24  /* rows of a block: a multiple of every TILE_R */
#define COLUMNS     512 /* columns converted at a time: TILE_R rows stay in the L1 cache */
#define PART        192 /* rows of an expert or a head per task of a thread, for few tokens */
#define SHARES      8   /* parts of a thread's rows, for few tokens */
#define AHEAD       512 /* prefetch distance of weights in bytes: of 6 rows 48 lines, as many as Zen 4 can await */
#define CODES_AHEAD 512 /* the same for codes */

struct product {
    float *out;
    const float *x;
    const void *w;
    const struct weight *bias;
    size_t first_bias; /* which belongs to the first row */
    enum dtype type;
    int n_tokens, rows, cols;
    bool accumulate;
    size_t x_pitch, out_pitch; /* elements from row to row */
    const int32_t *pair;       /* of an expert: the rows of out that its tokens have; NULL: in order */
    int pairs_a_row;           /* that share a row of x */
    size_t pitch;              /* bytes from row to row of w */
    /* The form of quantised weights, from the first row: see base/codes.h. */
    struct code_form form;
    const uint8_t *scales, *zeros;
    int n_groups;
    bool aligned; /* groups are multiples of 16 columns */
};

static inline int min(int a, int b)
{
    return a < b ? a : b;
}

/* Rows of token t. */
static inline size_t x_row(const struct product *m, int t)
{
    return (size_t)(m->pair ? m->pair[t] / m->pairs_a_row : t);
}

static inline size_t out_row(const struct product *m, int t)
{
    return (size_t)(m->pair ? m->pair[t] : t);
}

static inline const void *weight_row(const struct product *m, int r)
{
    return (const char *)m->w + (size_t)r * m->pitch;
}

/* The bytes that this number of a row's columns takes. */
static inline size_t row_bytes(const struct product *m, int cols)
{
    return m->form.codes != CODES_NONE ? (size_t)cols * (size_t)code_bits(m->form.codes) / 8
                                       : (size_t)cols * dtype_bytes(m->type);
}

/* An element of quantised weights. */
static float code_weight(const struct product *m, int row, int col)
{
    const uint8_t *codes = weight_row(m, row);
    unsigned code = code_bits(m->form.codes) == 8 ? codes[col] : codes[col / 2] >> (col % 2 * 4) & 15u;
    size_t i = (size_t)row * m->n_groups + (size_t)(((int64_t)m->form.first + col) / m->form.group);
    float scale = m->form.scale == SCALE_E8M0 ? e8m0_value(m->scales[i]) : ((const float *)(const void *)m->scales)[i];
    return (code_value(m->form.codes, code) - (float)(m->zeros ? m->zeros[i] : code_zero(m->form.codes))) * scale;
}

/* The position of row `first` of the weights, and the form of its elements. */
static void point_at(struct product *m, const struct weight *w, size_t first)
{
    const uint8_t *data = w->data;
    m->pitch = (size_t)w->cols * dtype_bytes(w->type);
    if (weight_is_quantised(w) && data != NULL) {
        m->form = w->form;
        m->n_groups = code_groups(&w->form, w->cols);
        m->pitch = code_pitch(&w->form, w->cols);
        size_t group = first * (size_t)m->n_groups;
        m->scales = data + code_scales_at(&w->form, w->rows, w->cols) + group * scale_bytes(w->form.scale);
        m->zeros = w->form.zeros ? data + code_zeros_at(&w->form, w->rows, w->cols) + group : NULL;
        m->aligned = m->n_groups < 2 || (w->form.group % 16 == 0 && w->form.first % 16 == 0);
    }
    m->w = data != NULL ? data + first * m->pitch : NULL;
}

#define ISA_CODE "kernels/cpu/matmul_isa.h"
#include "kernels/cpu/each_isa.h"

/* Tokens [t0, t0 + n_t) and rows [r0, r0 + n_r), by one thread. */
typedef void multiply_function(const struct product *m, int t0, int n_t, int r0, int n_r);

/* Are there so few tokens that weights go directly to registers? Not for codes whose groups begin within 16 columns. */
static bool are_few(const struct product *m)
{
    if (m->cols < SUM_LANES) /* nothing to convert */
        return true;
    return m->form.codes == CODES_NONE ? m->n_tokens <= FEW_TOKENS : m->aligned && m->n_tokens <= FEW_CODED;
}

/* All tokens, and rows [r0, r0 + n_r). */
static void multiply_part(const struct product *m, int r0, int n_r)
{
    int rows = are_few(m) ? n_r : ROWS;
    multiply_function *multiply = are_few(m) ? WIDEST(few) : WIDEST(block);
    for (int r = 0; r < n_r; r += rows)
        for (int t0 = 0; t0 < m->n_tokens; t0 += TOKENS)
            multiply(m, t0, min(TOKENS, m->n_tokens - t0), r0 + r, min(rows, n_r - r));
}

void cpu_matmul(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                int n_tokens, bool accumulate)
{
    struct product m = {.out = out,
                        .x = x,
                        .bias = bias,
                        .type = w->type,
                        .n_tokens = n_tokens,
                        .rows = w->rows,
                        .cols = w->cols,
                        .x_pitch = (size_t)w->cols,
                        .out_pitch = (size_t)w->rows,
                        .accumulate = accumulate};
    point_at(&m, w, 0);
    int n_threads = cpu_threads(q, (size_t)n_tokens * m.rows * m.cols);
    int shares = SHARES * n_threads, part = are_few(&m) ? (m.rows + shares - 1) / shares : ROWS;
    int n_parts = m.rows > 0 ? (m.rows + part - 1) / part : 0, n_spans = (n_tokens + TOKENS - 1) / TOKENS;
    multiply_function *multiply = are_few(&m) ? WIDEST(few) : WIDEST(block);
    /* Divides rows as evenly as possible; a delayed thread leaves part of its share to the others. */
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
    for (int i = 0; i < n_spans * n_parts; i++) {
        int t0 = i / n_parts * TOKENS, r0 = i % n_parts * part;
        multiply(&m, t0, min(TOKENS, n_tokens - t0), r0, min(part, m.rows - r0));
    }
}

void cpu_product_of_pairs(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                          const struct routes *r, const struct routing *how, enum x_rows x_rows, int n_tokens)
{
    int rows = r->n_held > 0 ? w->rows / r->n_held : 0, n_parts = (rows + PART - 1) / PART;
    int n_pairs = n_tokens * how->n_chosen;
    const int32_t *begin = r->begin + r->first_held;
    /* Some rows of one expert after the other, for all of its tokens; experts differ in how many they have. */
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_pairs *rows * w->cols)) schedule(dynamic)
    for (int i = 0; i < r->n_held * n_parts; i++) {
        int e = i / n_parts, r0 = i % n_parts * PART, n = begin[e + 1] - begin[e];
        struct product m = {.out = out,
                            .x = x,
                            .bias = bias,
                            .first_bias = (size_t)e * (size_t)rows,
                            .type = w->type,
                            .n_tokens = n,
                            .rows = rows,
                            .cols = w->cols,
                            .x_pitch = (size_t)w->cols,
                            .out_pitch = (size_t)rows,
                            .pair = r->pair + begin[e],
                            .pairs_a_row = x_rows == X_TOKENS ? how->n_chosen : 1};
        point_at(&m, w, (size_t)e * (size_t)rows);
        multiply_part(&m, r0, min(PART, rows - r0));
    }
}

void cpu_matmul_heads(struct queue *q, struct head_rows out, struct head_rows x, const struct weight *w, int n_heads,
                      int n_tokens)
{
    int rows = n_heads > 0 ? w->rows / n_heads : 0, n_parts = (rows + PART - 1) / PART;
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens * w->rows * w->cols)) schedule(static)
    for (int i = 0; i < n_heads * n_parts; i++) {
        int h = i / n_parts, r0 = i % n_parts * PART;
        struct product m = {.out = (float *)out.data + (size_t)h * (size_t)out.per_head,
                            .x = (const float *)x.data + (size_t)h * (size_t)x.per_head,
                            .type = w->type,
                            .n_tokens = n_tokens,
                            .rows = rows,
                            .cols = w->cols,
                            .x_pitch = (size_t)x.per_token,
                            .out_pitch = (size_t)out.per_token};
        point_at(&m, w, (size_t)h * (size_t)rows);
        multiply_part(&m, r0, min(PART, rows - r0));
    }
}
