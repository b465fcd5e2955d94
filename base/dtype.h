/* base/dtype.h - the number types in which weights and activations are kept, and their conversion to float. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_COUNT };

static inline size_t dtype_bytes(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

/* "F32", "F16", "BF16": the names that safetensors uses. */
const char *dtype_name(enum dtype type);

static inline float bf16_to_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

float f16_to_float(uint16_t bits);

/* Round to nearest even; NaN stays NaN, values beyond the range become infinities. */
uint16_t float_to_bf16(float x);
uint16_t float_to_f16(float x);

/* x rounded to the type. */
static inline float dtype_round(enum dtype type, float x)
{
    if (type == DTYPE_F32)
        return x;
    return type == DTYPE_BF16 ? bf16_to_float(float_to_bf16(x)) : f16_to_float(float_to_f16(x));
}

/* Element i of an array of the type. */
static inline float dtype_load(const void *array, enum dtype type, size_t i)
{
    if (type == DTYPE_F32)
        return ((const float *)array)[i];
    uint16_t bits = ((const uint16_t *)array)[i];
    return type == DTYPE_BF16 ? bf16_to_float(bits) : f16_to_float(bits);
}

static inline void dtype_store(void *array, enum dtype type, size_t i, float x)
{
    if (type == DTYPE_F32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] = type == DTYPE_BF16 ? float_to_bf16(x) : float_to_f16(x);
}

#endif
