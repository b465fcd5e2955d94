/* base/codes.h - quantised matrices: codes of 8 or 4 bits, and scales for groups of them. One form for every checkpoint
 * format; partition/formats/ translates. */
#ifndef BASE_CODES_H
#define BASE_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum codes {
    CODES_NONE, /* the matrix is not quantised */
    CODES_E4M3, /* 8 bits: sign, 4 of exponent, 3 of mantissa; no infinity */
    CODES_INT8, /* 8 bits without sign */
    CODES_INT4, /* 4 bits without sign */
    CODES_E2M1, /* 4 bits: sign, 2 of exponent, 1 of mantissa */
    CODES_COUNT
};

/* The type of scales in memory. */
enum scale_type {
    SCALE_F32,
    SCALE_E8M0 /* a byte b: 2^(b - 127) */
};

/* Element (r, k) of a matrix is scale[r][g] x (code[r][k] - zero[r][g]), g = (first + k) / group, rounded once. The
 * parts in memory are aligned to CODES_ALIGN bytes. Unused bits are zero in loaded weights and finite numbers in random
 * ones: kernels multiply them by activations that are 0, and the product with a NaN would be NaN.
 *   codes   rows of code_pitch bytes, of two codes of 4 bits the first one in the low half
 *   scales  [rows, code_groups]
 *   zeros [rows, code_groups] bytes, if the form has them; otherwise the zero is code_zero() */
struct code_form {
    enum codes codes;
    enum scale_type scale;
    int group; /* inputs that share a scale */
    int first; /* index of the first input in its group: a rank's inputs may begin within a group */
    bool zeros;
};

#define CODES_ALIGN     ((size_t)256)
#define CODES_ROW_ALIGN ((size_t)16) /* bytes */

static inline int code_bits(enum codes codes)
{
    return codes == CODES_E4M3 || codes == CODES_INT8 ? 8 : 4;
}

static inline int code_zero(enum codes codes)
{
    return codes == CODES_INT8 ? 128 : codes == CODES_INT4 ? 8 : 0;
}

static inline size_t scale_bytes(enum scale_type type)
{
    return type == SCALE_F32 ? sizeof(float) : 1;
}

/* Number of groups in a row of `cols` inputs. */
static inline int code_groups(const struct code_form *f, int cols)
{
    return cols > 0 ? (int)(((int64_t)f->first + cols - 1) / f->group) + 1 : 0;
}

/* Bytes from one row of codes to the next. */
static inline size_t code_pitch(const struct code_form *f, int cols)
{
    size_t bytes = ((size_t)cols * (size_t)code_bits(f->codes) + 7) / 8;
    return (bytes + CODES_ROW_ALIGN - 1) / CODES_ROW_ALIGN * CODES_ROW_ALIGN;
}

/* The offsets of the parts, and the size of the whole, in bytes. */
static inline size_t code_scales_at(const struct code_form *f, int rows, int cols)
{
    return ((size_t)rows * code_pitch(f, cols) + CODES_ALIGN - 1) / CODES_ALIGN * CODES_ALIGN;
}

static inline size_t code_zeros_at(const struct code_form *f, int rows, int cols)
{
    size_t n = (size_t)rows * (size_t)code_groups(f, cols) * scale_bytes(f->scale);
    return code_scales_at(f, rows, cols) + (n + CODES_ALIGN - 1) / CODES_ALIGN * CODES_ALIGN;
}

static inline size_t code_bytes(const struct code_form *f, int rows, int cols)
{
    size_t n = f->zeros ? (size_t)rows * (size_t)code_groups(f, cols) : 0;
    return rows > 0 && cols > 0 ? code_zeros_at(f, rows, cols) + n : 0;
}

/* Are the forms equal, `first` aside? */
static inline bool code_form_equal(const struct code_form *a, const struct code_form *b)
{
    return a->codes == b->codes && a->scale == b->scale && a->group == b->group && a->zeros == b->zeros;
}

/* The number that a code stands for, without zero and scale. NaN for the two NaN codes of E4M3. */
float code_value(enum codes codes, unsigned code);

/* The nearest code of E4M3, ties to even; saturates at the largest number; NaN stays NaN. */
uint8_t float_to_e4m3(float x);

/* 2^(b - 127); NaN for 255. */
static inline float e8m0_value(uint8_t b)
{
    uint32_t bits = b == 255 ? 0x7fc00000u : b == 0 ? 0x00400000u : (uint32_t)b << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One code of the matrix at `data`, the scale and the zero of one group, and one dequantised element. */
unsigned code_at(const void *data, const struct code_form *f, int cols, int row, int col);
float code_scale(const void *data, const struct code_form *f, int rows, int cols, int row, int group);
int code_zero_at(const void *data, const struct code_form *f, int rows, int cols, int row, int group);
float code_element(const void *data, const struct code_form *f, int rows, int cols, int row, int col);

/* "FP8", "INT4": for tables and messages. */
const char *codes_name(enum codes codes);

#endif
