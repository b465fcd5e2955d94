/* kernels/cuda/step/persistent_groups.cuh - layout of a narrow step's activations for quantised weights, and of the
 * scales and zero points of groups of columns. persistent_code_tile.cuh multiplies them. A slot's group scales are
 * loaded with its weights, as a box of all groups of a step for CHAIN_ROWS rows (gate's half before up's), and so are
 * zero points, a byte each. They are stored after the ring, slot by slot. */
#ifndef STEP_PERSISTENT_GROUPS_CUH
#define STEP_PERSISTENT_GROUPS_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/step/persistent_chain.cuh"

/* The final factor of integer products: see code_multiply. */
#define INTEGER_UNIT 16777216.0f

/* Columns of a lane's 16 bytes of codes. */
__host__ __device__ constexpr int code_columns(chain_form form)
{
    return form == FORM_INT4 || form == FORM_E2M1 ? 32 : 16;
}

/* Groups of a row in a step. */
__host__ __device__ constexpr int group_count(chain_form form)
{
    return CHAIN_WARPS * code_columns(form) / 16;
}

/* Bytes of a slot's scales, and of its zero points. */
__host__ __device__ constexpr int group_scale_bytes(chain_form form)
{
    return CHAIN_ROWS * group_count(form) * (int)sizeof(float);
}

__host__ __device__ constexpr int group_zero_bytes(chain_form form)
{
    return form == FORM_E4M3 ? 0 : CHAIN_ROWS * group_count(form);
}

/* The shared-memory address of a slot's scales, as copies take it. */
struct group_place {
    uint32_t scales, zeros;
};

template <chain_form FORM>
__device__ static inline group_place group_place_of(const chain_args &a, const chain_shared &sh, int slots, int slot)
{
    uint32_t base = shared_address(sh.base) + a.at.groups;
    return {base + slot * group_scale_bytes(FORM),
            base + slots * group_scale_bytes(FORM) + slot * group_zero_bytes(FORM)};
}

/* Bytes that come with a slot of codes. */
__host__ __device__ static inline int group_bytes(chain_form form, bool scales, bool zeros)
{
    return (scales ? group_scale_bytes(form) : 0) + (zeros ? group_zero_bytes(form) : 0);
}

/* Calls f(into, map, x, y, z) for the boxes that a slot's codes need: step `step` of rows from `row` on. */
template <chain_form FORM, typename F>
__device__ static inline void group_boxes(const chain_args &a, const chain_product &p, int product, int step, int row,
                                          const group_place &into, F f)
{
    if (a.group_maps == nullptr)
        return;
    const CUtensorMap *map = a.group_maps + product * 2;
    int first = step * group_count(FORM);
    f(into.scales, map, first, row, 0);
    if (p.gated)
        f(into.scales + group_scale_bytes(FORM) / 2, map, first, p.rows + row, 0);
    if (!a.group_zeros)
        return;
    f(into.zeros, map + 1, first, row, 0);
    if (p.gated)
        f(into.zeros + group_zero_bytes(FORM) / 2, map + 1, first, p.rows + row, 0);
}

/* The offset of columns [column, column + 4) of a warp's first GROUP_COLUMNS in an input, of token 0, in elements. A
 * lane multiplies 16 bytes of codes; the n-th eight columns of each lane of a quad are adjacent. */
template <chain_form FORM>
__device__ static inline int code_input_at(const chain_args &a, const chain_share &s, int warp, int column)
{
    const int LANE = code_columns(FORM);
    int part = column / LANE % 4, eight = column / (4 * LANE) * (LANE / 8) + column % LANE / 8;
    return chain_input_at(warp, s.n_spans, eight, a.n_tokens, 0) + part * 8 + column % 8;
}

#endif
