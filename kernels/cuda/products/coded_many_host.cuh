/* kernels/cuda/products/coded_many_host.cuh - the launch of coded_many.cuh. Host only. */
#ifndef PRODUCTS_CODED_MANY_HOST_CUH
#define PRODUCTS_CODED_MANY_HOST_CUH

#include "kernels/cuda/products/coded_many.cuh"
#include "kernels/cuda/tensor_map.cuh"

#define CODED_SHARED_BYTES (sizeof(coded_shared) + MANY_ALIGN)

template <typename T, many_kind KIND>
static void prepare_coded(struct queue *q)
{
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)coded_many<T, KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     CODED_SHARED_BYTES));
}

/* The codes, as bytes: [n_held][gates, ups][rows][bytes of a row's codes], or all rows of an expert in one, or of the
 * dense matrix. A box: MANY_BOX rows of gates or of ups, CODED_LOAD bytes. Elements beyond the columns are read as
 * zeros. */
template <typename T, many_kind KIND>
static CUtensorMap codes_map(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                             const coded &w, CUtensorMapSwizzle swizzle)
{
    const cuuint64_t bits = (cuuint64_t)code_bits(w.form.codes), row = w.pitch, rows = (cuuint64_t)a.rows;
    const cuuint64_t kinds = KIND == MANY_FIRST ? 2 : 1, n = KIND == MANY_DENSE ? 1 : (cuuint64_t)a.n_held;
    bool in_turn = KIND == MANY_FIRST && a.kind == ACTIVATION_SWIGLU;
    const cuuint64_t size[] = {(cuuint64_t)a.cols * bits / 8, rows, kinds, n};
    const cuuint64_t pitch[] = {in_turn ? 2 * row : row, in_turn ? row : rows * row, kinds * rows * row};
    const cuuint32_t box[] = {CODED_LOAD, MANY_BOX, 1, 1}, stride[] = {1, 1, 1, 1};
    CUtensorMap map = {};
    CUresult rc = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, (void *)w.codes, size, pitch, box, stride,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of codes [%d, %d, %d]: error %d", (int)n, a.rows, a.cols,
            (int)rc);
    return map;
}

template <typename T, many_kind KIND>
static void launch_coded(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                         const struct weight *w)
{
    coded codes = coded_rows(w, 0);
    launch(q, coded_many<T, KIND>, dim3((unsigned)cuda_state(q)->n_multiprocessors), dim3(CODED_THREADS),
           CODED_SHARED_BYTES, a, codes, codes_map<T, KIND>(q, encode, a, codes, CU_TENSOR_MAP_SWIZZLE_NONE));
}

#endif
