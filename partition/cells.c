/* partition/cells.c - see cells.h. */
#include "partition/cells.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/* A rectangle of the rank's share: outputs and inputs, counted from its first ones. */
struct rectangle {
    int64_t row, rows, col, cols;
};

static int64_t clip(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* The part of it that the given rows of the tensor cover. */
static struct rectangle covered(const struct cells_source *from)
{
    const struct weight_cells *k = &from->slice->cells;
    int64_t cell = k->in_first ? k->cell_cols : k->cell_rows, first = k->in_first ? k->in : k->out;
    int64_t all = k->in_first ? k->n_in : k->n_out;
    int64_t begin = clip(from->row * cell - first, 0, all), end = clip((from->row + from->rows) * cell - first, 0, all);
    if (k->in_first)
        return (struct rectangle){0, k->n_out, begin, end - begin};
    return (struct rectangle){begin, end - begin, 0, k->n_in};
}

/* Element number `at` of the given rows, as an integer. */
static inline uint32_t word_at(const struct cells_source *from, int64_t at)
{
    int bytes = from->slice->cells.bytes;
    uint32_t word = 0;
    memcpy(&word, (const unsigned char *)from->bytes + (size_t)at * (size_t)bytes, bytes < 4 ? (size_t)bytes : 4);
    return word;
}

static float number_at(const struct cells_source *from, int64_t at)
{
    uint32_t word = word_at(from, at);
    float x;
    switch (from->slice->cells.number) {
    case CELL_F16:
        return f16_to_float((uint16_t)word);
    case CELL_BF16:
        return bf16_to_float((uint16_t)word);
    case CELL_E8M0:
        return e8m0_value((uint8_t)word);
    case CELL_E4M3:
        return code_value(CODES_E4M3, word & 0xff);
    case CELL_F32:
    case CELL_BITS:
    case CELL_I64:
        break;
    }
    memcpy(&x, &word, sizeof x);
    return x;
}

static inline unsigned field_of(const struct weight_cells *k, uint32_t word, int field)
{
    return (word >> (field * k->bits) & (k->bits == 32 ? ~0u : (1u << k->bits) - 1)) + (unsigned)k->add;
}

/* ---- codes ---- */

/* Stores the codes of one element, at (row, col) of the given rows. */
static inline void put_codes(unsigned char *to, size_t pitch, const struct cells_source *from, struct rectangle r,
                             int64_t row, int64_t col)
{
    const struct weight_cells *k = &from->slice->cells;
    uint32_t word = word_at(from, row * from->ld + col);
    int64_t a = from->row + row, b = from->slice->col + col;
    int64_t out = (k->in_first ? b : a) * k->cell_rows - k->out - r.row;
    int64_t in = (k->in_first ? a : b) * k->cell_cols - k->in - r.col;
    for (int f = 0; f < k->fields; f++) {
        int64_t o = out + (k->field_output ? (k->field_awq ? awq_order[f] : f) : 0), i = in + (k->field_output ? 0 : f);
        if (o < 0 || o >= r.rows || i < 0 || i >= r.cols)
            continue;
        unsigned code = field_of(k, word, f);
        if (k->bits == 8)
            to[(size_t)o * pitch + (size_t)i] = (unsigned char)code;
        else
            to[(size_t)o * pitch + (size_t)i / 2] |= (unsigned char)(code << (i % 2 * 4));
    }
}

/* Threads divide the outputs among them, so that no two write to the same byte. */
static void unpack_codes(unsigned char *to, size_t pitch, const struct cells_source *from, struct rectangle r,
                         int n_threads)
{
    bool in_first = from->slice->cells.in_first;
    int64_t n_outer = in_first ? from->slice->cols : from->rows, n_inner = in_first ? from->rows : from->slice->cols;
    memset(to, 0, pitch * (size_t)r.rows);
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t outer = 0; outer < n_outer; outer++)
        for (int64_t inner = 0; inner < n_inner; inner++)
            put_codes(to, pitch, from, r, in_first ? inner : outer, in_first ? outer : inner);
}

/* Can the bytes of the file be copied unchanged? */
static bool is_copied(const struct weight_cells *k)
{
    return !k->in_first && !k->field_output && k->add == 0 && k->in * k->bits % 8 == 0;
}

/* Is one of n codes of E4M3 a NaN, 0x7f or 0xff? */
static bool e4m3_has_nan(const unsigned char *code, size_t n)
{
    unsigned char most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        unsigned char magnitude = code[i] & 0x7f;
        most = magnitude > most ? magnitude : most;
    }
    return most == 0x7f;
}

/* Refuses NaN codes, which only FP8 has. */
static bool has_nan(const struct cells_piece *p, int n_threads)
{
    size_t n_bad = 0;
#pragma omp parallel for num_threads(n_threads) reduction(+ : n_bad) schedule(static)
    for (size_t row = 0; row < p->rows; row++)
        n_bad += e4m3_has_nan((const unsigned char *)p->bytes + row * p->src_pitch, p->width);
    return n_bad > 0;
}

static int place_codes(struct cells_piece *p, const struct weight_slot *slot, const struct cells_source *from,
                       unsigned char *scratch, int n_threads, struct err *e)
{
    const struct weight_cells *k = &from->slice->cells;
    struct rectangle r = covered(from);
    p->pitch = code_pitch(&slot->form, slot->cols);
    p->at = (size_t)(from->slice->dst_row + r.row) * p->pitch + (size_t)r.col * (size_t)k->bits / 8;
    p->width = ((size_t)r.cols * (size_t)k->bits + 7) / 8;
    p->rows = r.cols > 0 ? (size_t)r.rows : 0;
    if (is_copied(k)) {
        size_t skipped = (size_t)(k->in - from->slice->col * k->cell_cols) * (size_t)k->bits / 8;
        p->bytes = (const unsigned char *)from->bytes + skipped;
        p->src_pitch = (size_t)from->ld * (size_t)k->bytes;
    } else {
        p->bytes = scratch;
        p->src_pitch = p->width;
        unpack_codes(scratch, p->width, from, r, n_threads);
    }
    if (slot->form.codes == CODES_E4M3 && has_nan(p, n_threads))
        return ERR(e, ERR_UNSUPPORTED, "has codes that are not numbers (0x7f or 0xff), expected weights");
    return 0;
}

/* ---- scales and zeros ---- */

/* Groups of columns that belong to groups of the file before this one. */
static int64_t groups_before(const struct weight_slot *slot, int64_t group)
{
    int64_t n = 0, all = code_groups(&slot->form, slot->cols);
    while (n < all && slot->order->group[n] < group)
        n++;
    return n;
}

/* The groups that the given rows describe, counted from the rank's first one. */
static struct rectangle covered_groups(const struct cells_source *from, const struct weight_slot *slot)
{
    const struct weight_cells *k = &from->slice->cells;
    struct rectangle r = covered(from);
    int64_t n_groups = code_groups(&slot->form, slot->cols), first = k->in / slot->form.group;
    if (!k->in_first || (k->cell_cols < slot->form.group && slot->order == NULL)) { /* a row describes all its
                                                                                       outputs */
        r.col = 0;
        r.cols = n_groups;
    } else if (slot->order != NULL) {
        r.col = groups_before(slot, from->row);
        r.cols = groups_before(slot, from->row + from->rows) - r.col;
    } else {
        r.col = clip(from->row - first, 0, n_groups);
        r.cols = clip(from->row + from->rows - first, 0, n_groups) - r.col;
    }
    return r;
}

/* The index, within the given rows, of the element for an output and a group of the rank's share is the sum of these
 * two. */
static int64_t output_at(const struct cells_source *from, int64_t out)
{
    const struct weight_cells *k = &from->slice->cells;
    int64_t o = (k->out + out) / k->cell_rows;
    return k->in_first ? o - from->slice->col : (o - from->row) * from->ld;
}

static int64_t group_at(const struct cells_source *from, const struct weight_slot *slot, int64_t group)
{
    const struct weight_cells *k = &from->slice->cells;
    int64_t in = slot->order != NULL
                     ? slot->order->group[group] * k->cell_cols
                     : (k->in / slot->form.group + group) * slot->form.group; /* the group's first one */
    int64_t i = in / k->cell_cols;
    return k->in_first ? (i - from->row) * from->ld : i - from->slice->col;
}

/* Room for r's results, of at most 4 bytes each, followed by a table of group_at: without it, every output would divide
 * once per group. */
static size_t results_bytes(struct rectangle r)
{
    return ((size_t)r.rows * (size_t)r.cols * sizeof(float) + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
}

static int64_t *find_groups(unsigned char *scratch, const struct cells_source *from, const struct weight_slot *slot,
                            struct rectangle r)
{
    int64_t *at = (int64_t *)(void *)(scratch + results_bytes(r));
    for (int64_t g = 0; g < r.cols; g++)
        at[g] = group_at(from, slot, r.col + g);
    return at;
}

static int refuse_scale(const struct cells_source *from, float x, struct err *e)
{
    return ERR(e, ERR_UNSUPPORTED, "has the scale %g beside output %lld, expected a positive number", (double)x,
               (long long)from->slice->cells.out);
}

/* The scales of an output's n groups; group: find_groups'. */
static int put_scales(unsigned char *to, enum scale_type type, const struct cells_source *from, int64_t output,
                      const int64_t *group, int64_t n, struct err *e)
{
    const float factor = from->slice->cells.factor > 0 ? from->slice->cells.factor : 1;
    for (int64_t g = 0; g < n; g++) {
        float x = number_at(from, output + group[g]) * factor;
        if (!(x > 0) || isinf(x))
            return refuse_scale(from, x, e);
        if (type == SCALE_E8M0)
            to[g] = (unsigned char)word_at(from, output + group[g]);
        else
            memcpy(to + (size_t)g * sizeof x, &x, sizeof x);
    }
    return 0;
}

/* Neighbouring outputs of a block have the same scales, which are converted once. */
static int place_scales(struct cells_piece *p, const struct weight_slot *slot, const struct cells_source *from,
                        unsigned char *scratch, struct err *e)
{
    struct rectangle r = covered_groups(from, slot);
    enum scale_type type = slot->form.scale;
    size_t size = scale_bytes(type), n_groups = (size_t)code_groups(&slot->form, slot->cols);
    size_t width = (size_t)r.cols * size;
    const int64_t *group = find_groups(scratch, from, slot, r);
    for (int64_t o = 0, before = -1; o < r.rows; o++) {
        int64_t output = output_at(from, r.row + o);
        unsigned char *to = scratch + (size_t)o * width;
        if (o > 0 && output == before)
            memcpy(to, to - width, width);
        else if (put_scales(to, type, from, output, group, r.cols, e) != 0)
            return -1;
        before = output;
    }
    *p = (struct cells_piece){
        .at = code_scales_at(&slot->form, slot->rows, slot->cols) +
              ((size_t)(from->slice->dst_row + r.row) * n_groups + (size_t)r.col) * size,
        .pitch = n_groups * size,
        .width = width,
        .rows = r.cols > 0 ? (size_t)r.rows : 0,
        .src_pitch = width,
        .bytes = scratch,
    };
    return 0;
}

/* The field of an output in its element. */
static int field_at(const struct weight_cells *k, int64_t out)
{
    int place = (int)((k->out + out) % k->cell_rows);
    for (int f = 0; k->field_awq && f < 8; f++)
        if (awq_order[f] == place)
            return f;
    return place;
}

static int place_zeros(struct cells_piece *p, const struct weight_slot *slot, const struct cells_source *from,
                       unsigned char *scratch, struct err *e)
{
    const struct weight_cells *k = &from->slice->cells;
    struct rectangle r = covered_groups(from, slot);
    size_t n_groups = (size_t)code_groups(&slot->form, slot->cols);
    bool same = k->plane == PLANE_SAME_ZEROS;
    unsigned expected = (unsigned)code_zero(slot->form.codes);
    const int64_t *group = find_groups(scratch, from, slot, r);
    for (int64_t o = 0; o < r.rows; o++)
        for (int64_t g = 0, output = output_at(from, r.row + o); g < r.cols; g++) {
            unsigned zero = field_of(k, word_at(from, output + group[g]), field_at(k, r.row + o));
            if (zero > 255 || (same && zero != expected))
                return ERR(e, ERR_UNSUPPORTED,
                           "has the zero %u, expected %s%u (is \"checkpoint_format\", gptq or gptq_v2, right?)", zero,
                           same ? "in a symmetric matrix " : "at most ", same ? expected : 255);
            scratch[o * r.cols + g] = (unsigned char)zero;
        }
    *p = (struct cells_piece){
        .at = code_zeros_at(&slot->form, slot->rows, slot->cols) + (size_t)(from->slice->dst_row + r.row) * n_groups +
              (size_t)r.col,
        .pitch = n_groups,
        .width = (size_t)r.cols,
        .rows = r.cols > 0 && !same ? (size_t)r.rows : 0,
        .src_pitch = (size_t)r.cols,
        .bytes = scratch,
    };
    return 0;
}

/* ---- checks ---- */

static int check_index(const struct cells_source *from, struct err *e)
{
    const struct weight_cells *k = &from->slice->cells;
    for (int64_t i = 0; i < from->slice->cols; i++) {
        int64_t in = from->slice->col + i, found = (int32_t)word_at(from, i);
        if (found != in / k->cell_cols && found != -1) /* -1: not set */
            return ERR(e, ERR_UNSUPPORTED,
                       "says that input %lld is of group %lld, expected %lld (inputs in the order of "
                       "their groups)",
                       (long long)in, (long long)found, (long long)(in / k->cell_cols));
    }
    return 0;
}

static int check_shape(const struct cells_source *from, struct err *e)
{
    const struct weight_cells *k = &from->slice->cells;
    const int64_t expected[2] = {k->cell_rows, k->cell_cols};
    for (int i = 0; i < 2; i++)
        if ((int64_t)word_at(from, i) != expected[i])
            return ERR(e, ERR_UNSUPPORTED, "says %u in place %d, expected %lld: the matrix is [%lld, %lld]",
                       word_at(from, i), i, (long long)expected[i], (long long)expected[0], (long long)expected[1]);
    return 0;
}

size_t cells_scratch(const struct weight_slot *slot, const struct cells_source *from)
{
    struct rectangle r = covered(from);
    size_t rows = (size_t)r.rows;
    switch (from->slice->cells.plane) {
    case PLANE_CODES:
        return is_copied(&from->slice->cells) ? 0 : rows * (size_t)(r.cols + 1);
    case PLANE_SCALES:
    case PLANE_ZEROS:
    case PLANE_SAME_ZEROS:
        r = covered_groups(from, slot);
        return results_bytes(r) + (size_t)r.cols * sizeof(int64_t);
    default:
        return 0;
    }
}

int cells_place(struct cells_piece *piece, const struct weight_slot *slot, const struct cells_source *from,
                unsigned char *scratch, int n_threads, struct err *e)
{
    *piece = (struct cells_piece){0};
    switch (from->slice->cells.plane) {
    case PLANE_CODES:
        return place_codes(piece, slot, from, scratch, n_threads, e);
    case PLANE_SCALES:
        return place_scales(piece, slot, from, scratch, e);
    case PLANE_ZEROS:
    case PLANE_SAME_ZEROS:
        return place_zeros(piece, slot, from, scratch, e);
    case PLANE_INDEX:
        return check_index(from, e);
    case PLANE_SHAPE:
        return check_shape(from, e);
    case PLANE_DENSE:
    case WEIGHT_PLANES:
        break;
    }
    return ERR(e, ERR_INTERNAL, "a plane that is not quantised");
}
