/* kernels/cpu/planes.c - see planes.h. */
#include "kernels/cpu/planes.h"
#include "kernels/cpu/cpu.h"

#include <string.h>

struct planes e2m1_planes[256];

static void set_plane(struct planes *p, int code, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    p->low[code] = (uint8_t)(bits >> 16);
    p->high[code] = (uint8_t)(bits >> 24);
}

__attribute__((constructor)) static void fill_planes(void)
{
    for (int i = 0; i < 256; i++)
        for (int code = 0; code < 16; code++)
            set_plane(&e2m1_planes[i], code, code_value(CODES_E2M1, (unsigned)code) * e8m0_value((uint8_t)i));
}
