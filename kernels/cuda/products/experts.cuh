/* kernels/cuda/products/experts.cuh - arguments of the kernels for products of experts. */
#ifndef PRODUCTS_EXPERTS_CUH
#define PRODUCTS_EXPERTS_CUH

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/tensor.cuh"

#include <cudaTypedefs.h>

/* The first product, whose results are activated, and the second one, whose results are summed; T: type of all arrays
 * but the biases. */
template <typename T>
struct expert_product {
    using type = T;
    T *out;
    const T *x;       /* one row per token in the first, per pair in the second */
    const T *w;       /* [n_held, rows, cols]; the first: twice as many rows, a gate and an up for each of `rows` */
    const void *bias; /* [n_held, rows], or twice as many; NULL: none */
    enum dtype bias_type;
    struct routes r;                            /* begin: of the first held expert */
    int n_held, n_chosen, n_tokens, rows, cols; /* expert numbers are relative to the first held one */
    int n_experts;                              /* held or not */
    enum activation kind;                       /* of the first */
    bool accumulate;                            /* of the second */
    /* For one dense matrix for all tokens: n_held parts of its columns, and their results, [n_held, n_tokens, rows],
     * which another kernel sums up; NULL: there is one part, whose results are `out` (codes_many.cu) */
    float *sums;
};

/* The row of an expert's first matrix with the gate (which 0) or the up (1) of column f. */
template <typename T>
__device__ static inline int row_of_gate(const expert_product<T> &a, int f, int which)
{
    return a.kind == ACTIVATION_SWIGLU ? 2 * f + which : f + which * a.rows;
}

template <typename T>
__device__ static inline float gate_bias(const expert_product<T> &a, int e, int f, int which)
{
    return weight_at(a.bias, a.bias_type, e * 2 * a.rows + row_of_gate(a, f, which), 0.0f);
}

/* Makes tensor maps for the kernels of many tokens; NULL: the device or this build does not support them. */
PFN_cuTensorMapEncodeTiled_v12000 many_encoder(const struct queue *q);

/* Does no collective follow an operation? See kernels/alone.h. */
bool is_alone(const struct queue *q);

/* Called once at start where the device supports it: for experts_few.cu, experts_fours.cu, experts_coded.cu,
 * codes_many.cu, ordered.cu, and joined.cu. */
void prepare_few_experts(struct queue *q);
void prepare_fours_experts(struct queue *q);
void prepare_coded_experts(struct queue *q);
void prepare_coded_products(struct queue *q);
void prepare_ordered_products(struct queue *q);
void prepare_joined_products(struct queue *q);

/* A product by quantised experts that takes_many accepts: for few tokens of each expert, for many with weights in E2M1,
 * and for many. All return false for other numbers of tokens, and for unsupported groups. */
template <typename T>
bool few_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                 const struct weight *w, bool first);
template <typename T>
bool fours_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                   const struct weight *w, bool first);
template <typename T>
bool coded_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                   const struct weight *w, bool first);

#endif
