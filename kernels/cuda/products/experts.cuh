/* kernels/cuda/products/experts.cuh - what the kernels for products of experts are given. */
#ifndef PRODUCTS_EXPERTS_CUH
#define PRODUCTS_EXPERTS_CUH

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/tensor.cuh"

#include <cudaTypedefs.h>

/* The first product, whose results are activated, and the second one, whose results are added up; T: of all arrays but
 * the biases. */
template <typename T>
struct expert_product {
    using type = T;
    T *out;
    const T *x;       /* a row a token in the first, a row a pair in the second */
    const T *w;       /* [n_held, rows, cols]; the first: twice as many rows, a gate and an up for each of `rows` */
    const void *bias; /* [n_held, rows], or twice as many; NULL: none */
    enum dtype bias_type;
    struct routes r;                            /* begin: of the first held expert */
    int n_held, n_chosen, n_tokens, rows, cols; /* experts are counted from the first held one on */
    int n_experts;                              /* held or not */
    enum activation kind;                       /* of the first */
    bool accumulate;                            /* of the second */
    /* One dense matrix instead, every token's: n_held parts of its columns, and their results, [n_held, n_tokens,
     * rows], which others add up; NULL: there is one part, whose results are `out` (codes_many.cu) */
    float *sums;
};

/* The row of an expert's first matrix that has the gate (which 0) or the up (1) of its column f. */
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

/* Makes maps for the kernels of many tokens; NULL: the device or this program is not capable of them. */
PFN_cuTensorMapEncodeTiled_v12000 many_encoder(const struct queue *q);

/* Once, at start, where the device is capable of it: of experts_few.cu, experts_coded.cu, and codes_many.cu. */
void prepare_few_experts(struct queue *q);
void prepare_coded_experts(struct queue *q);
void prepare_coded_products(struct queue *q);

/* A product by experts of codes, of those that takes_many is for: of few tokens of each, and of many. Return false for
 * those of another number, and for groups that they cannot do. */
template <typename T>
bool few_experts(struct queue *q, const expert_product<T> &a, const struct weight *w, bool first);
template <typename T>
bool coded_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                   const struct weight *w, bool first);

#endif
