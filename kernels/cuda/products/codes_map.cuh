/* kernels/cuda/products/codes_map.cuh - describes the codes of quantised experts, or of a dense matrix, to box copies.
 * Host only. */
#ifndef PRODUCTS_CODES_MAP_CUH
#define PRODUCTS_CODES_MAP_CUH

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/tensor_map.cuh"

/* Rows of gates or of ups, and bytes of each; kinds: 2 for both in one. Coordinates count `unit` bytes. */
struct codes_box {
    int rows, bytes, kinds, unit;
};

/* The codes: [n][gates, ups][rows][units of a row's codes], or all rows in one where there are no gates. n:
 * experts, or 1. Elements beyond the columns are read as zeros. */
template <typename T>
static CUtensorMap codes_map(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                             const coded &w, int n, bool gates, codes_box of, CUtensorMapSwizzle swizzle)
{
    const cuuint64_t bits = (cuuint64_t)code_bits(w.form.codes), row = w.pitch, rows = (cuuint64_t)a.rows;
    const cuuint64_t kinds = gates ? 2 : 1;
    bool in_turn = gates && a.kind == ACTIVATION_SWIGLU;
    const cuuint64_t size[] = {(cuuint64_t)a.cols * bits / 8 / of.unit, rows, kinds, (cuuint64_t)n};
    const cuuint64_t pitch[] = {in_turn ? 2 * row : row, in_turn ? row : rows * row, kinds * rows * row};
    const cuuint32_t box[] = {(cuuint32_t)(of.bytes / of.unit), (cuuint32_t)of.rows, (cuuint32_t)of.kinds, 1};
    const cuuint32_t stride[] = {1, 1, 1, 1};
    CUtensorMap map = {};
    CUresult rc = encode(&map, of.unit == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 4,
                         (void *)w.codes, size, pitch, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of codes [%d, %d, %d]: error %d", n, a.rows, a.cols,
            (int)rc);
    return map;
}

#endif
