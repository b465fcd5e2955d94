/* kernels/peer.h - devices of one host that write into each other's memory: sharing it between ranks, which are
 * processes, and sums over the ranks through it. Optional for a backend (ops->peer). A sum adds elements in the order
 * of the ranks, in float, and rounds once: every rank has the same bits, and an element's sum depends neither on the
 * number of elements nor on the path that they took. */
#ifndef KERNELS_PEER_H
#define KERNELS_PEER_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_MAX_RANKS    8
#define PEER_HANDLE_BYTES 64

struct peer_ops {
    /* share: the handle by which another process of the host maps this memory of ops->alloc; connect: that memory
     * mapped into this process. If impossible, they return false and NULL, without queue.err. disconnect comes before
     * the owner frees the memory, and accepts NULL. */
    bool (*share)(struct queue *q, void *memory, unsigned char handle[PEER_HANDLE_BYTES]);
    void *(*connect)(struct queue *q, const unsigned char handle[PEER_HANDLE_BYTES]);
    void (*disconnect)(struct queue *q, void *memory);

    /* For the operations below. refusal: why this device cannot, as the end of a sentence; NULL: it can. open: NULL
     * (and queue.err) on failure; close accepts NULL. memory: the memory of this rank's device for the others to write
     * to, which must be shared; attach: that of all ranks, [n_ranks], before the first operation. */
    const char *(*refusal)(struct queue *q, int n_ranks);
    void *(*open)(struct queue *q, int rank, int n_ranks);
    void (*close)(struct queue *q, void *p);
    void *(*memory)(void *p);
    void (*attach)(void *p, void *const *memory);

    /* Enqueued. All ranks must enqueue the same operations in the same order: a device waits for the others within
     * them. Pointers: 16-byte aligned. */

    /* data[i] = the sum of the ranks' data[i]. */
    void (*sum)(struct queue *q, void *p, void *data, size_t n);
    /* ops->join_columns of the ranks' `in`, which is [n_rows, begin[rank + 1] - begin[rank]]: out is [n_rows,
     * begin[n_ranks]]. Only where takes_columns returns true: not for too many columns, nor where a rank has none. */
    bool (*takes_columns)(const struct queue *q, const void *p, const int *begin, int n_rows);
    void (*gather_columns)(struct queue *q, void *p, void *out, const void *in, const int *begin, int n_rows);
};

#ifdef __cplusplus
}
#endif

#endif
