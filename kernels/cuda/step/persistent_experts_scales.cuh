/* kernels/cuda/step/persistent_experts_scales.cuh - the scales of experts whose weights are codes: those of the rows
 * that a slot of the ring holds lie behind them, as they lie in memory, all groups of a row one after the other. A copy
 * begins and ends at multiples of 16 bytes, so some of the neighbours' may come, too. */
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
    size_t from; /* bytes from the matrix's first ones */
    uint32_t bytes;

    __device__ scale_rows(int row, int n, int pitch)
    {
        size_t begin = (size_t)row * (size_t)pitch;
        from = begin / SCALES_ALIGN * SCALES_ALIGN;
        bytes = (uint32_t)((begin + (size_t)(n * pitch) + SCALES_ALIGN - 1) / SCALES_ALIGN * SCALES_ALIGN - from);
    }
};

/* The place of the first row's scales in such a copy. */
__device__ static inline int scales_begin(int row, int pitch)
{
    return (int)((unsigned)row * (unsigned)pitch % SCALES_ALIGN);
}

/* The bytes of a copy of n rows' at most. */
__host__ __device__ static inline int scale_rows_bytes(int n, int pitch)
{
    return (n * pitch + 2 * SCALES_ALIGN - 1) / SCALES_ALIGN * SCALES_ALIGN;
}

/* The places in a slot of experts' codes: a box of n rows; one of `more` rows, the ups of these or the rows that
 * follow; the scales of the first ones, or of both where the rows follow each other; the ups' scales. */
struct coded_slot {
    int second, scales, up_scales, bytes; /* bytes: of all, and more, so that the next slot's boxes can follow */

    __host__ __device__ coded_slot(int n, int more, bool ups, int pieces, int pitch)
    {
        second = boxed(n * pieces * 128);
        scales = second + (more > 0 ? boxed(more * pieces * 128) : 0);
        up_scales = scales + scale_rows_bytes(ups ? n : n + more, pitch);
        bytes = boxed(up_scales + (ups ? scale_rows_bytes(more, pitch) : 0));
    }
    /* Boxes begin at multiples of the bytes within which their rows' parts are exchanged. */
    __host__ __device__ static int boxed(int bytes)
    {
        return (bytes + 1023) / 1024 * 1024;
    }
};

#endif
