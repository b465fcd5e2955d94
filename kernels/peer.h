/* kernels/peer.h - devices of one host that write into each other's memory: how ranks, which are processes, get at it, and sums
 * over the ranks by it. A backend may have it or not (ops->peer).
 *
 * A sum's elements are added in the order of the ranks, in float, and rounded once: every rank has the same bits, and an
 * element's sum depends neither on the number of elements nor on the way that they took. */
#ifndef KERNELS_PEER_H
#define KERNELS_PEER_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_MAX_RANKS    8
#define PEER_HANDLE_BYTES 64
#define PEER_MOST_BYTES   (16 << 20) /* of a sum */

struct peer_ops {
    /* What another process of the host needs to reach this memory, of ops->alloc; and that memory in this process. What
     * cannot be is false and NULL, without queue.err. disconnect comes before the owner frees the memory, and accepts
     * NULL. */
    bool (*share)(struct queue *q, void *memory, unsigned char handle[PEER_HANDLE_BYTES]);
    void *(*connect)(struct queue *q, const unsigned char handle[PEER_HANDLE_BYTES]);
    void (*disconnect)(struct queue *q, void *memory);

    /* What follows needs. memory: what this rank's device has for the others to write to, to be shared; [n_ranks] it and theirs
     * before the first operation. refusal: why this device cannot, as the end of a sentence, NULL: it can. open: NULL (and queue.err) on failure; close accepts NULL. */
    const char *(*refusal)(struct queue *q, int n_ranks);
    void *(*open)(struct queue *q, int rank, int n_ranks);
    void (*close)(struct queue *q, void *p);
    void *(*memory)(void *p);
    void (*attach)(void *p, void *const *memory);

    /* Enqueued. All ranks must enqueue the same operations in the same order: a device waits for the others within them. takes_*:
     * not too large, and of this shape; else the operation must not be called. Pointers: at multiples of 16 bytes. */

    /* data[i] = the ranks' data[i], added up. */
    bool (*takes_sum)(const struct queue *q, const void *p, size_t n);
    void (*sum)(struct queue *q, void *p, void *data, size_t n);
    /* The same of partial, [n_tokens, dim], which is only read, and then ops->norm with the sum as `add`, bit by bit. */
    bool (*takes_sum_norm)(const struct queue *q, const void *p, int n_tokens, int dim);
    void (*sum_norm)(struct queue *q, void *p, void *out, void *x, const void *partial, enum norm_kind kind,
                     const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps);
    /* ops->join_columns of the ranks' `in`, which is [n_rows, begin[rank + 1] - begin[rank]]: out is [n_rows, begin[n_ranks]]. */
    bool (*takes_columns)(const struct queue *q, const void *p, const int *begin, int n_rows);
    void (*gather_columns)(struct queue *q, void *p, void *out, const void *in, const int *begin, int n_rows);
};

#ifdef __cplusplus
}
#endif

#endif
