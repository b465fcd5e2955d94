/* kernels/cpu/planes.h - products of E2M1 and powers of two as tables of bytes: they have so few bits that the upper
 * half of a float contains them. For lines_avx2.h. */
#ifndef KERNELS_CPU_PLANES_H
#define KERNELS_CPU_PLANES_H

#include <stdint.h>

/* The lower and the higher byte of that half, for each of 16 codes. */
struct planes {
    _Alignas(16) uint8_t low[16];
    uint8_t high[16];
};

/* For each power (e8m0_value). Filled before main, since products must not wait for each other. */
extern struct planes e2m1_planes[256];

#endif
