/* kernels/beside.h - sums over the ranks that run beside other operations, for long messages: the devices' copy engines
 * bring every rank's part to all others while the queue goes on, and ending a sum adds the parts. The sums are those of
 * kernels/peer.h, bit for bit. Memory that devices share is needed (ops->peer). */
#ifndef KERNELS_BESIDE_H
#define KERNELS_BESIDE_H

#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BESIDE_PIECES    4
#define BESIDE_MAX_RANKS 4 /* each sends its part to all others: with more, sums in two steps move less */
#define BESIDE_BYTES     ((size_t)64 << 20) /* of the pieces of a sum together, at most */

struct beside_ops {
    /* Device memory that open takes. */
    size_t (*bytes)(int n_ranks);
    /* As those of struct peer_ops. The memory is zeroed. */
    void *(*open)(struct queue *q, int rank, int n_ranks);
    void (*close)(struct queue *q, void *p);
    void *(*memory)(void *p);
    void (*attach)(void *p, void *const *memory);

    /* Enqueued; all ranks call them in the same order, never while operations are captured. A sum's pieces, below
     * BESIDE_PIECES, begin in the order of their numbers from 0 on, and only after the same piece of the sum before has
     * ended; where the pieces have other sizes than those of the sum before, after all of its pieces have. They end in
     * any order. Until then `data`, n elements aligned to 16 bytes, may not be written. */
    void (*begin)(struct queue *q, void *p, int piece, void *data, size_t n);
    void (*end)(struct queue *q, void *p, int piece);
};

#ifdef LOCKSTEP_CUDA
extern const struct beside_ops beside_ops_cuda;
/* How often the end of a sum looks for a part before it fails. */
void cuda_beside_patience(struct queue *q, uint32_t looks);
#endif

/* The operations of the backend that has `ops`; NULL: it has none. */
static inline const struct beside_ops *beside_ops_of(const struct ops *ops)
{
#ifdef LOCKSTEP_CUDA
    if (ops == &ops_cuda)
        return &beside_ops_cuda;
#endif
    (void)ops;
    return NULL;
}

#ifdef __cplusplus
}
#endif

#endif
