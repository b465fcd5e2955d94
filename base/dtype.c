/* base/dtype.c - see dtype.h. IEEE 754 binary16 and bfloat16, by integer arithmetic so that every compiler agrees. */
#include "base/dtype.h"

#include <math.h>

const char *dtype_name(enum dtype type)
{
    return type == DTYPE_F32 ? "F32" : type == DTYPE_F16 ? "F16" : "BF16";
}

float f16_to_float(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 */
        float x = ldexpf((float)mantissa, -24);
        return sign != 0 ? -x : x;
    }
    uint32_t wide = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

uint16_t float_to_bf16(float x)
{
    uint32_t wide;
    memcpy(&wide, &x, sizeof wide);
    if (isnan(x))
        return (uint16_t)((wide >> 16) | 0x40);
    return (uint16_t)((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

uint16_t float_to_f16(float x)
{
    uint32_t wide;
    memcpy(&wide, &x, sizeof wide);
    uint16_t sign = (uint16_t)((wide >> 16) & 0x8000);
    uint32_t magnitude = wide & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN */
        return sign | 0x7e00;
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) /* below 2^-14: the result counts units of 2^-24 */
        return sign | (uint16_t)lrintf(ldexpf(fabsf(x), 24));
    uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return sign | (uint16_t)((rounded - 0x38000000) >> 13);
}
