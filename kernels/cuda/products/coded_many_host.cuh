/* kernels/cuda/products/coded_many_host.cuh - the launch of coded_many.cuh. Host only. */
#ifndef PRODUCTS_CODED_MANY_HOST_CUH
#define PRODUCTS_CODED_MANY_HOST_CUH

#include "kernels/cuda/products/coded_many.cuh"
#include "kernels/cuda/products/codes_map.cuh"

#define CODED_SHARED_BYTES (sizeof(coded_shared) + MANY_ALIGN)

template <typename T, many_kind KIND>
static void prepare_coded(struct queue *q)
{
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)coded_many<T, KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     CODED_SHARED_BYTES));
}

/* The map of boxes for a kind of product. */
template <typename T, many_kind KIND>
static CUtensorMap many_codes_map(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                                  const coded &w, CUtensorMapSwizzle swizzle)
{
    const codes_box box = {MANY_BOX, CODED_LOAD, 1, 1};
    return codes_map(q, encode, a, w, KIND == MANY_DENSE ? 1 : a.n_held, KIND == MANY_FIRST, box, swizzle);
}

template <typename T, many_kind KIND>
static void launch_coded(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                         const struct weight *w)
{
    coded codes = coded_rows(w, 0);
    launch(q, coded_many<T, KIND>, dim3((unsigned)cuda_state(q)->n_multiprocessors), dim3(CODED_THREADS),
           CODED_SHARED_BYTES, a, codes, many_codes_map<T, KIND>(q, encode, a, codes, CU_TENSOR_MAP_SWIZZLE_NONE));
}

#endif
