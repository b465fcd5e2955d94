/* kernels/cuda/step/persistent_experts_scales.cuh - the scales of quantised experts: those of the rows in a slot of the
 * ring follow the rows, in their memory layout, all groups of a row one after the other. A copy begins and ends at
 * multiples of 16 bytes, so it may include some neighbouring scales. */
#ifndef STEP_PERSISTENT_EXPERTS_SCALES_CUH
#define STEP_PERSISTENT_EXPERTS_SCALES_CUH

#include "kernels/cuda/step/persistent_choice.cuh"

#define SCALES_ALIGN 16

/* The form of the other products' codes in a kernel for experts of FORM. */
constexpr __host__ __device__ chain_form expert_dense_form(chain_form form)
{
    return form == FORM_E2M1 ? FORM_NONE : form;
}

/* The scales of n rows. */
struct scale_rows {
    size_t from; /* offset from the matrix's first scales, in bytes */
    uint32_t bytes;

    __device__ scale_rows(int row, int n, int pitch)
    {
        size_t begin = (size_t)row * (size_t)pitch;
        from = begin / SCALES_ALIGN * SCALES_ALIGN;
        bytes = (uint32_t)((begin + (size_t)(n * pitch) + SCALES_ALIGN - 1) / SCALES_ALIGN * SCALES_ALIGN - from);
    }
};

/* The offset of the first row's scales in such a copy. */
__device__ static inline int scales_begin(int row, int pitch)
{
    return (int)((unsigned)row * (unsigned)pitch % SCALES_ALIGN);
}

/* Maximum bytes of a copy of n rows' scales. */
__host__ __device__ static inline int scale_rows_bytes(int n, int pitch)
{
    return (n * pitch + 2 * SCALES_ALIGN - 1) / SCALES_ALIGN * SCALES_ALIGN;
}

/* The layout of a slot of experts' codes: a box of n rows; one of `more` rows, the ups of these or the following rows;
 * the scales of the first box, or of both if their rows are consecutive; the ups' scales. */
struct coded_slot {
    int second, scales, up_scales, bytes; /* bytes: total, padded to the alignment of the next slot's boxes */

    __host__ __device__ coded_slot(int n, int more, bool ups, int pieces, int pitch)
    {
        second = boxed(n * pieces * 128);
        scales = second + (more > 0 ? boxed(more * pieces * 128) : 0);
        up_scales = scales + scale_rows_bytes(ups ? n : n + more, pitch);
        bytes = boxed(up_scales + (ups ? scale_rows_bytes(more, pitch) : 0));
    }
    /* Boxes are aligned to their swizzle period. */
    __host__ __device__ static int boxed(int bytes)
    {
        return (bytes + 1023) / 1024 * 1024;
    }
};

#endif
