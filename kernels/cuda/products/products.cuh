/* kernels/cuda/products/products.cuh - what the files of products have of each other. */
#ifndef PRODUCTS_PRODUCTS_CUH
#define PRODUCTS_PRODUCTS_CUH

#include "kernels/cuda/device.cuh"

/* Rows of out of a product: elements from one token's to the next one's. */
struct product_out {
    void *data;
    int ld;
};

/* matmul for more tokens than are streamed, weights of any dense type. */
void product_of_many(struct queue *q, product_out out, const void *x, const struct weight *w, const struct weight *bias,
                     int n_tokens, bool accumulate);

/* matmul with quantised weights; streams: product_of_codes_open found room; early: kernels may begin before the
 * one before them ends. */
void product_of_codes(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      int n_tokens, bool accumulate, bool streams, bool early);

/* The same for tokens that are more than few, not too many either; w has memory to make it wide in. Returns false for
 * what it cannot do. */
bool coded_product(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                   int n_tokens, bool accumulate);

/* Once, at start: lets the kernels of product_of_codes use their shared memory; false: the device has too little. */
bool product_of_codes_open(cudaError_t *rc, size_t shared_bytes);

/* The same two for experts; pairs_a_row: that share a row of x. */
void experts_of_codes(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      const struct routes *r, const struct routing *how, int pairs_a_row, int n_tokens, bool streams);
bool experts_of_codes_open(cudaError_t *rc, size_t shared_bytes);

/* Do the kernels of few tokens have the shared memory that they need? */
bool products_stream(const struct queue *q);

#endif
