/* kernels/philox.h - the counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers:
 * As Easy as 1, 2, 3", SC 2011), for CPU and CUDA alike: a number depends on (seed, counter) and on nothing else. */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_INLINE __host__ __device__ static inline
#else
#define PHILOX_INLINE static inline
#endif

/* The key schedule and ten rounds over the counter {counter, stream}; the four words replace out[4]. */
PHILOX_INLINE void philox(uint64_t seed, uint64_t counter, uint64_t stream, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1) with 53 bits. */
PHILOX_INLINE double philox_uniform(uint64_t seed, uint64_t counter)
{
    uint32_t words[4];
    philox(seed, counter, 0, words);
    uint64_t bits = ((uint64_t)words[0] << 32 | words[1]) >> 11;
    return (double)bits * (1.0 / 9007199254740992.0);
}

#endif
