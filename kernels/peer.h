/* kernels/peer.h - devices of one host that write into each other's memory: how ranks, which are processes, get at it,
 * and sums over the ranks by it. A backend may have it or not (ops->peer).
 *
 * A sum's elements are added in the order of the ranks, in float, and rounded once: every rank has the same bits, and
 * an element's sum depends neither on the number of elements nor on the way that they took. */
#ifndef KERNELS_PEER_H
#define KERNELS_PEER_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_MAX_RANKS    8
#define PEER_HANDLE_BYTES 64

struct peer_ops {
    /* The handle by which another process of the host reaches this memory of ops->alloc; and that memory in this
     * process. If that is impossible, they return false and NULL, without queue.err. disconnect comes before the owner
     * frees the memory, and accepts NULL. */
    bool (*share)(struct queue *q, void *memory, unsigned char handle[PEER_HANDLE_BYTES]);
    void *(*connect)(struct queue *q, const unsigned char handle[PEER_HANDLE_BYTES]);
    void (*disconnect)(struct queue *q, void *memory);

    /* For the operations below. refusal: why this device cannot, as the end of a sentence; NULL: it can. open: NULL
     * (and queue.err) on failure; close accepts NULL. memory: what this rank's device has for the others to write to,
     * to be shared; attach: that of all ranks, [n_ranks], before the first operation. */
    const char *(*refusal)(struct queue *q, int n_ranks);
    void *(*open)(struct queue *q, int rank, int n_ranks);
    void (*close)(struct queue *q, void *p);
    void *(*memory)(void *p);
    void (*attach)(void *p, void *const *memory);

    /* Enqueued. All ranks must enqueue the same operations in the same order: a device waits for the others within
     * them. Pointers: at multiples of 16 bytes. */

    /* data[i] = the ranks' data[i], added up. */
    void (*sum)(struct queue *q, void *p, void *data, size_t n);
    /* ops->join_columns of the ranks' `in`, which is [n_rows, begin[rank + 1] - begin[rank]]: out is [n_rows,
     * begin[n_ranks]]. Only where takes_columns says so: not for too many, nor where a rank has none. */
    bool (*takes_columns)(const struct queue *q, const void *p, const int *begin, int n_rows);
    void (*gather_columns)(struct queue *q, void *p, void *out, const void *in, const int *begin, int n_rows);
};

#ifdef __cplusplus
}
#endif

#endif
