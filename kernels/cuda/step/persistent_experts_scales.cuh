/* kernels/cuda/step/persistent_experts_scales.cuh - the scales of experts whose weights are codes: those of the rows
 * that a slot of the ring holds come with it, as they lie, all groups of a row one after the other. A copy begins and
 * ends at multiples of 16 bytes, so some of the neighbours' may come, too. In a slot the scales of gates come first,
 * those of ups from the middle on, as the weights do. */
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

/* The bytes of a copy of n rows' at most; those that a slot needs for the scales of a product. */
static inline int scale_rows_bytes(int n, int pitch)
{
    return (n * pitch + 2 * SCALES_ALIGN - 1) / SCALES_ALIGN * SCALES_ALIGN;
}

static inline int slot_scale_bytes(int pitch)
{
    return max(2 * scale_rows_bytes(CHAIN_OCTET, pitch), scale_rows_bytes(CHAIN_ROWS, pitch));
}

#endif
