/* kernels/cuda/codes.cuh - quantised weights (base/codes.h) on the device: dequantised one at a time for rare cases,
 * and as operands of the tensor cores, which take two neighbouring columns as a pair of 16-bit numbers. */
#ifndef CUDA_CODES_CUH
#define CUDA_CODES_CUH

#include "kernels/cuda/tensor.cuh"

#include <cuda_fp8.h>

/* A matrix, or its rows from some row on. */
struct coded {
    const uint8_t *codes, *scales, *zeros; /* zeros NULL: the codes' own */
    size_t pitch;                          /* row pitch of the codes in bytes */
    int n_groups;
    struct code_form form;
};

/* The codes of a matrix from row `first` on. */
static inline struct coded coded_rows(const struct weight *w, size_t first)
{
    struct coded m = {};
    const uint8_t *data = (const uint8_t *)w->data;
    m.form = w->form;
    m.pitch = code_pitch(&w->form, w->cols);
    m.n_groups = code_groups(&w->form, w->cols);
    size_t group = first * (size_t)m.n_groups;
    m.codes = data + first * m.pitch;
    m.scales = data + code_scales_at(&w->form, w->rows, w->cols) + group * scale_bytes(w->form.scale);
    m.zeros = w->form.zeros ? data + code_zeros_at(&w->form, w->rows, w->cols) + group : NULL;
    return m;
}

__device__ static inline float coded_scale(const coded &m, size_t i)
{
    if (m.form.scale == SCALE_F32)
        return ((const float *)m.scales)[i];
    return __uint_as_float(m.scales[i] == 0 ? 0x00400000u : (uint32_t)m.scales[i] << 23);
}

__device__ static inline int coded_zero(const coded &m, size_t i)
{
    if (m.zeros != nullptr)
        return m.zeros[i];
    return m.form.codes == CODES_INT8 ? 128 : m.form.codes == CODES_INT4 ? 8 : 0;
}

__device__ static inline float coded_value(enum codes codes, unsigned code)
{
    if (codes == CODES_E4M3)
        return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, __NV_E4M3)));
    if (codes != CODES_E2M1)
        return (float)code;
    float x =
        (code & 6) == 0 ? 0.5f * (float)(code & 1) : __uint_as_float((126 + (code >> 1 & 3)) << 23 | (code & 1) << 22);
    return code & 8 ? -x : x;
}

/* One element. */
__device__ static inline float coded_element(const coded &m, int row, int col)
{
    const uint8_t *codes = m.codes + (size_t)row * m.pitch;
    bool bytes = m.form.codes == CODES_E4M3 || m.form.codes == CODES_INT8;
    unsigned code = bytes ? codes[col] : codes[col / 2] >> (col % 2 * 4) & 15;
    size_t i = (size_t)row * m.n_groups + (size_t)(((int64_t)m.form.first + col) / m.form.group);
    return (coded_value(m.form.codes, code) - (float)coded_zero(m, i)) * coded_scale(m, i);
}

/* ---- operands of products ----
 *
 * A word of 4 bytes has 4 columns of 8 bits, or 8 of 4. code_pairs<T, C>::decode makes WORDS pairs of it: (0, 1), (2,
 * 3) for 8 bits; (0, 4), (1, 5), (2, 6), (3, 7) for 4, whose bits are 16 apart already. zero: from code_pairs::zero. */
template <typename T, enum codes C>
struct code_pairs;

__device__ static inline uint32_t codes_pick(uint32_t a, uint32_t b, uint32_t which)
{
    return __byte_perm(a, b, which);
}

/* The bits of a where mask has ones, those of b elsewhere, in one instruction: the compiler makes two of it. */
__device__ static inline uint32_t codes_merge(uint32_t a, uint32_t b, uint32_t mask)
{
    uint32_t c;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(c) : "r"(a), "r"(b), "r"(mask));
    return c;
}

template <typename P>
__device__ static inline uint32_t codes_word(P pair)
{
    return *(const uint32_t *)&pair;
}

template <>
struct code_pairs<__half, CODES_E4M3> {
    static const int WORDS = 2;
    __device__ static uint32_t zero(int)
    {
        return 0;
    }
    __device__ static void decode(uint32_t (&to)[2], uint32_t w, uint32_t)
    {
        asm("{.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, low;\n\tcvt.rn.f16x2.e4m3x2 "
            "%1, "
            "high;}"
            : "=r"(to[0]), "=r"(to[1])
            : "r"(w));
    }
};

/* By shifts: 2^-120 of the value, also for subnormals. */
template <>
struct code_pairs<__nv_bfloat16, CODES_E4M3> {
    static const int WORDS = 2;
    __device__ static uint32_t zero(int)
    {
        return 0;
    }
    __device__ static uint32_t widen(uint32_t bytes)
    {
        return tensor_multiply<__nv_bfloat16>((bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 4, 0x7b807b80u);
    }
    __device__ static void decode(uint32_t (&to)[2], uint32_t w, uint32_t)
    {
        to[0] = widen(codes_pick(w, 0, 0x1404));
        to[1] = widen(codes_pick(w, 0, 0x3424));
    }
};

/* 1024 + u, by its bits. */
template <>
struct code_pairs<__half, CODES_INT8> {
    static const int WORDS = 2;
    __device__ static uint32_t zero(int z)
    {
        return codes_word(__half2half2(__int2half_rn(-1024 - z)));
    }
    __device__ static uint32_t add(uint32_t a, uint32_t b)
    {
        return codes_word(__hadd2(*(const __half2 *)&a, *(const __half2 *)&b));
    }
    __device__ static void decode(uint32_t (&to)[2], uint32_t w, uint32_t z)
    {
        to[0] = add(codes_pick(w, 0x64646464u, 0x4140), z);
        to[1] = add(codes_pick(w, 0x64646464u, 0x4342), z);
    }
};

/* 2^23 + u, a float by its bits. */
template <>
struct code_pairs<__nv_bfloat16, CODES_INT8> {
    static const int WORDS = 2;
    __device__ static uint32_t zero(int z)
    {
        return __float_as_uint(-8388608.0f - (float)z);
    }
    __device__ static float number(uint32_t w, uint32_t which, uint32_t z)
    {
        return __uint_as_float(codes_pick(w, 0x4b000000u, which)) + __uint_as_float(z);
    }
    __device__ static void decode(uint32_t (&to)[2], uint32_t w, uint32_t z)
    {
        to[0] = tensor_pack<__nv_bfloat16>(number(w, 0x7440, z), number(w, 0x7441, z));
        to[1] = tensor_pack<__nv_bfloat16>(number(w, 0x7442, z), number(w, 0x7443, z));
    }
};

template <>
struct code_pairs<__half, CODES_INT4> {
    static const int WORDS = 4;
    __device__ static uint32_t zero(int z)
    {
        return codes_word(__half2half2(__int2half_rn(-1024 - z)));
    }
    __device__ static void decode(uint32_t (&to)[4], uint32_t w, uint32_t z)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i] = code_pairs<__half, CODES_INT8>::add((w >> 4 * i & 0x000f000fu) | 0x64006400u, z);
    }
};

/* 128 + u. */
template <>
struct code_pairs<__nv_bfloat16, CODES_INT4> {
    static const int WORDS = 4;
    __device__ static uint32_t zero(int z)
    {
        return codes_word(__bfloat162bfloat162(__int2bfloat16_rn(-128 - z)));
    }
    __device__ static void decode(uint32_t (&to)[4], uint32_t w, uint32_t z)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t pair = (w >> 4 * i & 0x000f000fu) | 0x43004300u;
            to[i] = codes_word(__hadd2(*(const __nv_bfloat162 *)&pair, *(const __nv_bfloat162 *)&z));
        }
    }
};

/* 2^-14 of the value, and 2^-126, by its bits: subnormal numbers, which a multiplication corrects. */
template <>
struct code_pairs<__half, CODES_E2M1> {
    static const int WORDS = 4;
    __device__ static uint32_t zero(int)
    {
        return 0;
    }
    /* Without the multiplication: the tensor cores take subnormal numbers, too. The codes at even and at odd places, a
     * byte each, come first. */
    __device__ static void decode_small(uint32_t (&to)[4], uint32_t w)
    {
        const uint32_t SIGNS = 0x80808080u, PAIR = 0x8e008e00u;
        uint32_t odd = codes_merge(w, w >> 3, SIGNS), even = codes_merge(w << 4, w << 1, SIGNS);
        to[0] = even << 8 & PAIR;
        to[1] = odd << 8 & PAIR;
        to[2] = even & PAIR;
        to[3] = odd & PAIR;
    }
    __device__ static void decode(uint32_t (&to)[4], uint32_t w, uint32_t)
    {
        decode_small(to, w);
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i] = tensor_multiply<__half>(to[i], 0x74007400u);
    }
};

template <>
struct code_pairs<__nv_bfloat16, CODES_E2M1> {
    static const int WORDS = 4;
    __device__ static uint32_t zero(int)
    {
        return 0;
    }
    __device__ static void decode(uint32_t (&to)[4], uint32_t w, uint32_t)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t t = w >> 4 * i;
            to[i] = tensor_multiply<__nv_bfloat16>((t & 0x00070007u) << 6 | (t & 0x00080008u) << 12, 0x7e807e80u);
        }
    }
};

/* Both numbers of a pair times a float, rounded once. */
template <typename T>
__device__ static inline uint32_t pair_times(uint32_t pair, float scale)
{
    float2 x = tensor_unpack<T>(pair);
    return tensor_pack<T>(x.x * scale, x.y * scale);
}

#endif
