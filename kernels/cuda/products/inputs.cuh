/* kernels/cuda/products/inputs.cuh - quantised inputs of a product. */
#ifndef PRODUCTS_INPUTS_CUH
#define PRODUCTS_INPUTS_CUH

#include "kernels/cuda/codes.cuh"

#define INPUTS_MANY 128 /* tokens up to which inputs_many.cuh is faster than cuBLASLt */

/* In the scratch that quantised products share. */
struct coded_inputs {
    uint8_t *codes; /* [n_rows, cols] */
    float *scales;  /* [n_rows], or [groups of 128 columns, pitch] */
    float *blocks;  /* of w, if block-scaled: [blocks of rows, blocks_pitch] */
    float *rest;    /* the memory after them */
    int cols, n_rows, pitch, blocks_pitch;
    float given, most; /* see struct input_form */
};

/* out (+)= x w^T (+ bias); out: [x.n_rows, w->rows]. Returns false for an unsupported product. */
bool product_of_some_inputs(struct queue *q, void *out, const coded_inputs &x, const struct weight *w,
                            const struct weight *bias, bool accumulate);

/* The same by clusters of joined.cuh, where they are faster; and whether they are, if addresses are aligned. */
bool inputs_by_clusters(struct queue *q, void *out, const coded_inputs &x, const struct weight *w,
                        const struct weight *bias, bool accumulate);
bool clusters_take_inputs(const struct queue *q, const struct weight *w, int n_tokens);

/* out = silu of x times w's first rows, times x times the second ones; out: [x.n_rows, w->rows / 2] (gated.cu). And
 * whether there is a kernel for it that is faster than product and activation. */
bool gated_product_takes_codes(const struct queue *q, const struct weight *w, enum activation kind, int n_tokens);
void gated_product_of_codes(struct queue *q, void *out, const coded_inputs &x, const struct weight *w);

/* ops->gated_product of quantised weights (inputs.cu). */
bool gated_product_of_inputs(struct queue *q, void *out, const void *x, const struct weight *w, enum activation kind,
                             int n_tokens);

/* Called once at start. */
void product_of_inputs_open(cudaError_t *rc, size_t shared_bytes);

#endif
