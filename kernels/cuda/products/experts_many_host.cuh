/* kernels/cuda/products/experts_many_host.cuh - selects the products that experts_many.cuh computes, and launches them.
 * Host only. */
#ifndef PRODUCTS_EXPERTS_MANY_HOST_CUH
#define PRODUCTS_EXPERTS_MANY_HOST_CUH

#include "kernels/cuda/products/experts_many.cuh"
#include "kernels/cuda/products/gated.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/warpgroup_host.cuh"
#include "kernels/invariance.h"

#define MANY_SHARED_BYTES(FORM) (sizeof(typename FORM::shared) + MANY_ALIGN)

template <typename T, typename FORM>
static void prepare_many_form(struct queue *q)
{
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)experts_many<T, MANY_FIRST, FORM>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, MANY_SHARED_BYTES(FORM)));
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)experts_many<T, MANY_SECOND, FORM>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, MANY_SHARED_BYTES(FORM)));
}

template <typename T>
static void prepare_many_forms(struct queue *q)
{
    prepare_many_form<T, many_narrow>(q), prepare_many_form<T, many_middle>(q), prepare_many_form<T, many_wide>(q);
}

/* Returns the driver's encoder of tensor maps; NULL: the device or this build does not support the kernel. */
static PFN_cuTensorMapEncodeTiled_v12000 prepare_many_experts(struct queue *q)
{
    if (!has_warpgroups(q))
        return NULL;
    prepare_many_forms<__half>(q);
    prepare_many_forms<__nv_bfloat16>(q);
    prepare_few_experts(q);
    prepare_fours_experts(q);
    prepare_coded_experts(q);
    prepare_coded_products(q);
    prepare_ordered_products(q);
    prepare_gated_products(q);
    prepare_joined_products(q);
    return find_encoder(q);
}

/* The weights: [n_held][gates, ups][rows][cols], or all rows of an expert in one. A box: MANY_BOX rows of gates or of
 * ups */
template <typename T>
static CUtensorMap expert_map(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                              bool first)
{
    const cuuint64_t row = (cuuint64_t)a.cols * sizeof(T), rows = (cuuint64_t)a.rows, kinds = first ? 2 : 1;
    bool in_turn = first && a.kind == ACTIVATION_SWIGLU;
    const cuuint64_t size[] = {(cuuint64_t)a.cols, rows, kinds, (cuuint64_t)a.n_held};
    const cuuint64_t pitch[] = {in_turn ? 2 * row : row, in_turn ? row : rows * row, kinds * rows * row};
    const cuuint32_t box[] = {MANY_COLS, MANY_BOX, 1, 1}, stride[] = {1, 1, 1, 1};
    CUtensorMap map = {};
    CUresult rc = encode(
        &map, std::is_same<T, __half>::value ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
        (void *)a.w, size, pitch, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of %d experts' [%d, %d]: error %d", a.n_held, a.rows, a.cols,
            (int)rc);
    return map;
}

/* Are rows of results written in pieces of 16 bytes, and the activation supported? */
template <typename T>
static bool takes_many(const expert_product<T> &a, bool first)
{
    return a.rows % 8 == 0 && (uintptr_t)a.out % 16 == 0 && (!first || has_gate_formula(a.kind));
}

template <typename T, bool FIRST, typename FORM>
static void launch_form(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a)
{
    launch(q, experts_many < T, FIRST ? MANY_FIRST : MANY_SECOND, FORM >,
           dim3((unsigned)cuda_state(q)->n_multiprocessors), dim3(MANY_THREADS), MANY_SHARED_BYTES(FORM), a,
           expert_map(q, encode, a, FIRST));
}

#define NARROW_MEAN 18 /* so few tokens that hardly any expert has more than one tile's */
#define MIDDLE_MEAN 64

/* Returns false for products that the kernels do not support. */
template <typename T, bool FIRST>
static bool launch_many(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                        const struct weight *w)
{
    if (encode == NULL || !takes_many(a, FIRST))
        return false;
    if (weight_is_quantised(w))
        return (!cuda_is_invariant(q) &&
                (fours_experts(q, encode, a, w, FIRST) || few_experts(q, encode, a, w, FIRST))) ||
               coded_experts(q, encode, a, w, FIRST);
    int mean = a.n_tokens * a.n_chosen / a.n_experts; /* tokens of an expert */
    if (mean <= NARROW_MEAN)
        launch_form<T, FIRST, many_narrow>(q, encode, a);
    else if (mean <= MIDDLE_MEAN)
        launch_form<T, FIRST, many_middle>(q, encode, a);
    else
        launch_form<T, FIRST, many_wide>(q, encode, a);
    return true;
}

#endif
