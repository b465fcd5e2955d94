/* kernels/cuda/products/products.cuh - internal interface between the files of products. */
#ifndef PRODUCTS_PRODUCTS_CUH
#define PRODUCTS_PRODUCTS_CUH

#include "kernels/cuda/device.cuh"

/* Row pitch of out in elements. */
struct product_out {
    void *data;
    int ld;
};

/* matmul for more tokens than the stream takes, weights of any dense type. */
void product_of_many(struct queue *q, product_out out, const void *x, const struct weight *w, const struct weight *bias,
                     int n_tokens, bool accumulate);

/* The same for a medium number of tokens where clusters of joined.cuh are faster than cuBLASLt. Returns false for
 * others and for an unsupported product. */
bool product_by_clusters(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                         int n_tokens, bool accumulate);

/* The same for any number of tokens, the same bits for all numbers. Returns false for an unsupported product. */
bool product_in_order(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      int n_tokens, bool accumulate);

/* matmul with quantised weights; streams: product_of_codes_open found enough shared memory; early: kernels may begin
 * before the preceding one ends. */
void product_of_codes(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      int n_tokens, bool accumulate, bool streams, bool early);

/* The same for a medium number of tokens; w has scratch to dequantise into. Returns false for an unsupported
 * product. */
bool coded_product(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                   int n_tokens, bool accumulate);

/* matmul with quantised weights, the same bits for any number of tokens; and the part of it that coded_product's kernel
 * computes, which returns false for an unsupported product. */
void invariant_product_of_codes(struct queue *q, void *out, const void *x, const struct weight *w,
                                const struct weight *bias, int n_tokens, bool accumulate);
bool invariant_coded_product(struct queue *q, void *out, const void *x, const struct weight *w,
                             const struct weight *bias, int n_tokens, bool accumulate);

/* Called once at start: lets the kernels of product_of_codes use their shared memory; false: the device has too
 * little. */
bool product_of_codes_open(cudaError_t *rc, size_t shared_bytes);

/* The same two functions for experts; pairs_a_row: pairs that share a row of x. */
void experts_of_codes(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      const struct routes *r, const struct routing *how, int pairs_a_row, int n_tokens, bool streams);
bool experts_of_codes_open(cudaError_t *rc, size_t shared_bytes);

/* Returns whether the kernels of few tokens have the shared memory that they need. */
bool products_stream(const struct queue *q);

#endif
