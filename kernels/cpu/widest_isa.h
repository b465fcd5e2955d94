/* kernels/cpu/widest_isa.h - selects the widest instruction set of vector_isa.h that this processor supports:
 * WIDEST(name) is the function of that name for it. */
#ifndef KERNELS_CPU_WIDEST_ISA_H
#define KERNELS_CPU_WIDEST_ISA_H

#ifndef CPU_ISA_LIMIT /* for tests of the narrower sets */
#define CPU_ISA_LIMIT 512
#endif

#if defined(__x86_64__)
#include <immintrin.h>

/* Bits of a vector. */
static inline int widest_isa(void)
{
    if (CPU_ISA_LIMIT >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 512;
    return CPU_ISA_LIMIT >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 256 : 128;
}

#define WIDEST(name) (widest_isa() == 512 ? name##_avx512 : widest_isa() == 256 ? name##_avx2 : name##_base)
#else
#define WIDEST(name) name##_base
#endif

#endif
