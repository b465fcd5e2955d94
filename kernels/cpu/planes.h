/* kernels/cpu/planes.h - products of E2M1 and powers of two as tables of bytes: they have so few bits that the upper
 * half of a float contains them. For lines_avx2.h. */
#ifndef KERNELS_CPU_PLANES_H
#define KERNELS_CPU_PLANES_H

#include "kernels/cpu/cpu.h"

#include <string.h>

/* The lower and the higher byte of that half, for each of 16 codes. */
struct planes {
    _Alignas(16) uint8_t low[16];
    uint8_t high[16];
};

static struct planes e2m1_planes[256]; /* for each power (e8m0_value) */

static void set_plane(struct planes *p, int code, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    p->low[code] = (uint8_t)(bits >> 16);
    p->high[code] = (uint8_t)(bits >> 24);
}

/* Runs before main: products must not wait for each other. */
__attribute__((constructor)) static void fill_planes(void)
{
    for (int i = 0; i < 256; i++)
        for (int code = 0; code < 16; code++)
            set_plane(&e2m1_planes[i], code, code_value(CODES_E2M1, (unsigned)code) * e8m0_value((uint8_t)i));
}

#endif
