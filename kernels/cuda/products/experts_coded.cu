/* kernels/cuda/products/experts_coded.cu - products of many tokens by experts with quantised weights. */
#include "kernels/cuda/products/coded_many_host.cuh"
#include "kernels/cuda/products/codes_stream.cuh"
#include "kernels/invariance.h"

void prepare_coded_experts(struct queue *q)
{
    prepare_coded<__half, MANY_FIRST>(q), prepare_coded<__half, MANY_SECOND>(q);
    prepare_coded<__nv_bfloat16, MANY_FIRST>(q), prepare_coded<__nv_bfloat16, MANY_SECOND>(q);
}

template <typename T>
bool coded_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                   const struct weight *w, bool first)
{
    enum code_scaling way;
    bool few = a.n_tokens <= CODES_MAX_TOKENS && !cuda_is_invariant(q);
    if (few || !codes_scaling(w, &way)) /* a piece of 16 bytes has one scale */
        return false;
    if (first)
        launch_coded<T, MANY_FIRST>(q, encode, a, w);
    else
        launch_coded<T, MANY_SECOND>(q, encode, a, w);
    return true;
}

template bool coded_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<__half> &a,
                            const struct weight *w, bool first);
template bool coded_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode,
                            const expert_product<__nv_bfloat16> &a, const struct weight *w, bool first);
