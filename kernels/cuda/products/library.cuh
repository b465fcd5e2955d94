/* kernels/cuda/products/library.cuh - products by cuBLASLt, and those of quantised inputs, which it multiplies. */
#ifndef PRODUCTS_LIBRARY_CUH
#define PRODUCTS_LIBRARY_CUH

#include "kernels/cuda/products/products.cuh"

/* Codes of E4M3: what each counts in a row of w and in a row of x; or in blocks of 128 x 128 of w, [blocks of rows][of
 * columns, a multiple of 4], and in 128 columns of a row of x, [of columns][rows], where w has scales of such. */
struct code_scales {
    const float *w, *x;
};

/* out (+)= x w^T (+ bias). x of the activations' type, as w is; with scales both are codes, w->cols a multiple of 16.
 * Returns false if cuBLASLt has nothing for the shape. */
bool product_of_library(struct queue *q, product_out out, const void *x, const struct weight *w,
                        const struct weight *bias, int n_tokens, bool accumulate, const struct code_scales *scales);

struct library;
int library_open(struct library **to, int device, struct err *e);
void library_close(struct library *m); /* NULL: nothing */
struct library *products_library(const struct queue *q);

/* Does cuBLASLt take codes with such scales? */
bool library_takes_codes(void);

/* matmul of inputs that are quantised first, as w->inputs says (inputs.cu). Returns false if there is no product for
 * some of the tokens. */
bool product_of_inputs(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                       int n_tokens, bool accumulate);

#endif
