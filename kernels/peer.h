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

struct peer_ops {
    /* What another process of the host needs to reach this memory, of ops->alloc; and that memory in this process. What
     * cannot be is false and NULL, without queue.err. disconnect comes before the owner frees the memory, and accepts
     * NULL. */
    bool (*share)(struct queue *q, void *memory, unsigned char handle[PEER_HANDLE_BYTES]);
    void *(*connect)(struct queue *q, const unsigned char handle[PEER_HANDLE_BYTES]);
    void (*disconnect)(struct queue *q, void *memory);

    /* Sums. memory: what this rank's device has for the others to write to, to be shared; [n_ranks] it and theirs before the
     * first sum. NULL (and queue.err) on failure; close accepts NULL. */
    void *(*open_sums)(struct queue *q, int rank, int n_ranks);
    void *(*memory)(void *sums);
    void (*attach)(void *sums, void *const *memory);
    void (*close_sums)(struct queue *q, void *sums);
    /* The most bytes that a sum may have; and a sum that a norm of so many tokens follows, 0: of no such one. */
    size_t (*most)(const void *sums);
    size_t (*most_normed)(const struct queue *q, const void *sums, int n_tokens, int dim);
    /* data[i] = the ranks' data[i], added up. Enqueued. All ranks must enqueue the same sums in the same order: a device waits
     * for the others within it. */
    void (*sum)(struct queue *q, void *sums, void *data, size_t n);
    /* The same of partial, [n_tokens, dim], and then ops->norm with the sum as `add`, bit by bit. partial is read only. */
    void (*sum_norm)(struct queue *q, void *sums, void *out, void *x, const void *partial, enum norm_kind kind,
                     const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps);
};

#ifdef __cplusplus
}
#endif

#endif
