/* kernels/cuda/products/experts_fours.cu - products of many tokens by experts with weights in E2M1. */
#include "kernels/cuda/products/coded_many_host.cuh"
#include "kernels/cuda/products/fours_many.cuh"

#define FOURS_SHARED_BYTES (sizeof(fours_shared) + MANY_ALIGN)

#define LEAST_MEAN 33 /* tokens of an expert: experts_few.cu is faster with fewer */

static_assert(FOURS_ROW == CODED_LOAD, "the box of many_codes_map");

template <many_kind KIND>
static void prepare_fours(struct queue *q)
{
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)fours_many<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     FOURS_SHARED_BYTES));
}

void prepare_fours_experts(struct queue *q)
{
    prepare_fours<MANY_FIRST>(q), prepare_fours<MANY_SECOND>(q);
}

/* A group's scale covers 32 columns from a multiple of 32 on, and the scales of 64 columns are read together. */
static bool takes_groups(const struct weight *w)
{
    const struct code_form *f = &w->form;
    return f->codes == CODES_E2M1 && f->scale == SCALE_E8M0 && f->group == FOURS_GROUP &&
           f->first % (2 * FOURS_GROUP) == 0 && code_groups(f, w->cols) % 2 == 0;
}

template <many_kind KIND>
static void launch_fours(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode,
                         const expert_product<__nv_bfloat16> &a, const struct weight *w)
{
    coded codes = coded_rows(w, 0);
    launch(q, fours_many<KIND>, dim3((unsigned)cuda_state(q)->n_multiprocessors), dim3(FOURS_THREADS),
           FOURS_SHARED_BYTES, a, codes,
           many_codes_map<__nv_bfloat16, KIND>(q, encode, a, codes, CU_TENSOR_MAP_SWIZZLE_64B));
}

template <typename T>
bool fours_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                   const struct weight *w, bool first)
{
    if constexpr (std::is_same<T, __nv_bfloat16>::value)
        if (a.n_tokens * a.n_chosen >= LEAST_MEAN * a.n_experts && takes_groups(w)) {
            if (first)
                launch_fours<MANY_FIRST>(q, encode, a, w);
            else
                launch_fours<MANY_SECOND>(q, encode, a, w);
            return true;
        }
    return false;
}

template bool fours_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<__half> &a,
                            const struct weight *w, bool first);
template bool fours_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode,
                            const expert_product<__nv_bfloat16> &a, const struct weight *w, bool first);
