/* kernels/code_noise.h - random codes, for benchmarks without a checkpoint, for CPU and CUDA alike. */
#ifndef KERNELS_CODE_NOISE_H
#define KERNELS_CODE_NOISE_H

#include "base/codes.h"

#include <math.h>

#ifdef __CUDACC__
#define CODE_NOISE_INLINE __host__ __device__ static inline
#else
#define CODE_NOISE_INLINE static inline
#endif

/* The scale that makes random codes resemble uniform numbers in [-range, range]; for SCALE_E8M0 the power of two below
 * it. */
static inline float code_noise_scale(enum codes codes, float range)
{
    static const float deviation[CODES_COUNT] = {1, 107, 74, 4.2f, 2.9f}; /* standard deviation of code_noise's codes */
    return range / sqrtf(3) / deviation[codes];
}

/* Makes random codes from eight random bytes: none is NaN, and 4-bit codes have mean 0. (INT4 codes from 0 to 15 would
 * average half a code below their zero, which would bias all results.) */
CODE_NOISE_INLINE uint64_t code_noise(enum codes codes, uint64_t bits)
{
    const uint64_t NIBBLES = 0x1111111111111111u;
    if (codes == CODES_E4M3) /* NaN codes lose their lowest bit */
        bits ^= (((bits & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u) & 0x8080808080808080u) >> 7;
    if (codes == CODES_INT4) /* 0 becomes 8 */
        bits |= (~(bits | bits >> 1 | bits >> 2 | bits >> 3) & NIBBLES) << 3;
    return bits;
}

#endif
