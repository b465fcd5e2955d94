/* kernels/code_noise.h - random codes, for benchmarks without a checkpoint. */
#ifndef KERNELS_CODE_NOISE_H
#define KERNELS_CODE_NOISE_H

#include "base/codes.h"

#include <math.h>

/* The scale that makes random codes like uniform numbers of [-range, range]; for SCALE_E8M0 the power of two below. */
static inline float code_noise_scale(enum codes codes, float range)
{
    static const float deviation[CODES_COUNT] = {1, 130, 74, 4.6f, 2.9f}; /* of all codes alike */
    return range / sqrtf(3) / deviation[codes];
}

/* A random byte of codes: all are numbers. */
static inline uint8_t code_noise(enum codes codes, uint8_t bits)
{
    return codes == CODES_E4M3 && (bits & 0x7f) == 0x7f ? (uint8_t)(bits ^ 1) : bits;
}

#endif
