/* kernels/cpu/vector_isa.h - vectors of one instruction set, chosen by ISA: 512 (AVX-512), 256 (AVX2), 128 (the
 * baseline of the architecture). Included several times, hence no guard: FN(name) is that set's own name. A sum is
 * always kept in 16 lanes, lane l taking columns l, l + 16, ..: PARTS registers per sum, with the same result on every
 * set with fused multiply-add. Before this: immintrin.h on x86, base/dtype.h. */
#undef FN
#undef TARGET
#undef LANES
#if ISA == 512
#define FN(name) name##_avx512
#define TARGET   __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define LANES    16
#elif ISA == 256
#define FN(name) name##_avx2
#define TARGET   __attribute__((target("avx2,fma,f16c")))
#define LANES    8
#else
#define FN(name) name##_base
#define TARGET
#define LANES 4
#endif

#ifndef SUM_LANES
#define SUM_LANES 16
#define PARTS     (SUM_LANES / LANES)
#define INLINE    static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The lanes of four sums become four numbers, by halves: lane l and lane l + 8, and so on. */
INLINE void add_lanes(float *out, const float *sum)
{
    typedef float quad __attribute__((vector_size(16)));
    quad s[4];
    for (int i = 0; i < 4; i++) {
        quad part[4];
        memcpy(part, sum + i * 16, sizeof part);
        s[i] = (part[0] + part[2]) + (part[1] + part[3]);
    }
    quad low = __builtin_shufflevector(s[0], s[1], 0, 1, 4, 5) + __builtin_shufflevector(s[0], s[1], 2, 3, 6, 7);
    quad high = __builtin_shufflevector(s[2], s[3], 0, 1, 4, 5) + __builtin_shufflevector(s[2], s[3], 2, 3, 6, 7);
    quad all = __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
    memcpy(out, &all, sizeof all);
}
#endif

typedef float FN(vec) __attribute__((vector_size(LANES * 4)));
typedef uint32_t FN(words) __attribute__((vector_size(LANES * 4)));
typedef int32_t FN(ints) __attribute__((vector_size(LANES * 4)));
typedef uint16_t FN(halves) __attribute__((vector_size(LANES * 2)));

TARGET INLINE FN(vec) FN(load_f32)(const float *p)
{
    FN(vec) v;
    memcpy(&v, p, sizeof v);
    return v;
}

TARGET INLINE void FN(store)(float *p, FN(vec) v)
{
    memcpy(p, &v, sizeof v);
}

TARGET INLINE FN(vec) FN(load_bf16)(const uint16_t *p)
{
#if ISA == 512 /* one instruction; compilers turn the vector conversion into six */
    return (FN(vec))_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#else
    FN(halves) h;
    memcpy(&h, p, sizeof h);
    FN(words) w = __builtin_convertvector(h, FN(words)) << 16;
    return (FN(vec))w;
#endif
}

TARGET INLINE FN(vec) FN(load_f16)(const uint16_t *p)
{
#if ISA == 512
    return (FN(vec))_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif ISA == 256
    return (FN(vec))_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    float x[LANES];
    for (int l = 0; l < LANES; l++)
        x[l] = f16_to_float(p[l]);
    return FN(load_f32)(x);
#endif
}

/* LANES elements from element i of an array of the type, which should be a constant. */
TARGET INLINE FN(vec) FN(load)(const void *array, enum dtype type, size_t i)
{
    if (type == DTYPE_F32)
        return FN(load_f32)((const float *)array + i);
    if (type == DTYPE_BF16)
        return FN(load_bf16)((const uint16_t *)array + i);
    return FN(load_f16)((const uint16_t *)array + i);
}
