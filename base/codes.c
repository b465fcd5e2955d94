/* base/codes.c - see codes.h. */
#include "base/codes.h"

#include "base/dtype.h"

#include <math.h>

static float e4m3_value(unsigned code)
{
    if ((code & 0x7f) == 0x7f)
        return NAN;
    return 256 *
           f16_to_float((uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 7)); /* the same fields with another bias */
}

uint8_t float_to_e4m3(float x)
{
    const float largest = 448, smallest_normal = 0x1p-6f, step = 0x1p-9f; /* step: from one subnormal to the next */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
    bits &= 0x7fffffffu;
    if (isnan(x))
        return sign | 0x7f;
    if (fabsf(x) >= largest)
        return sign | 0x7e;
    if (fabsf(x) < smallest_normal)
        return (uint8_t)(sign | lrintf(fabsf(x) / step));
    bits += 0x7ffffu + (bits >> 20 & 1); /* 20 bits of the mantissa are dropped */
    return (uint8_t)(sign | ((bits >> 20) - ((127 - 7) << 3)));
}

float code_value(enum codes codes, unsigned code)
{
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    if (codes == CODES_E4M3)
        return e4m3_value(code);
    if (codes == CODES_E2M1)
        return code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
    return (float)code;
}

unsigned code_at(const void *data, const struct code_form *f, int cols, int row, int col)
{
    const uint8_t *codes = (const uint8_t *)data + (size_t)row * code_pitch(f, cols);
    if (code_bits(f->codes) == 8)
        return codes[col];
    return codes[col / 2] >> (col % 2 * 4) & 15;
}

float code_scale(const void *data, const struct code_form *f, int rows, int cols, int row, int group)
{
    size_t i = (size_t)row * (size_t)code_groups(f, cols) + (size_t)group;
    const uint8_t *scales = (const uint8_t *)data + code_scales_at(f, rows, cols);
    float x;
    if (f->scale == SCALE_E8M0)
        return e8m0_value(scales[i]);
    memcpy(&x, scales + i * sizeof x, sizeof x);
    return x;
}

int code_zero_at(const void *data, const struct code_form *f, int rows, int cols, int row, int group)
{
    if (!f->zeros)
        return code_zero(f->codes);
    return ((const uint8_t *)
                data)[code_zeros_at(f, rows, cols) + (size_t)row * (size_t)code_groups(f, cols) + (size_t)group];
}

float code_element(const void *data, const struct code_form *f, int rows, int cols, int row, int col)
{
    int group = (int)(((int64_t)f->first + col) / f->group);
    float value = code_value(f->codes, code_at(data, f, cols, row, col));
    return (value - (float)code_zero_at(data, f, rows, cols, row, group)) * code_scale(data, f, rows, cols, row, group);
}

const char *codes_name(enum codes codes)
{
    static const char *const name[CODES_COUNT] = {"none", "FP8", "INT8", "INT4", "FP4"};
    return name[codes];
}
