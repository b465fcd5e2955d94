/* rank/comm/comm.h - the collectives of a step, on device memory. comm_mpi.c serves host memory, comm_nccl.c GPUs,
 * comm_peer.c those of one host, before NCCL.
 *
 * A transport belongs to a set of ranks, not to a model: its memory suffices for sums of any size. So models on the
 * same ranks, whose steps alternate, share one. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "kernels/ops.h"
#include "rank/world/world.h"

struct comm;
struct observers;

struct comm_ops {
    const char *name;
    bool ordered, floats_ordered; /* an element's sum never depends on n: of all_reduce, all_reduce_floats */
    /* Sum n elements of the queue's activation type over the ranks, in place; every rank gets the same bits, and on up
     * to two ranks an element's sum does not depend on n. Enqueued; collective: all ranks call it with the same n, in
     * the same order. */
    void (*all_reduce)(struct comm *c, struct queue *q, void *data, size_t n);
    /* The same for floats, whatever the activation type: for a few values whose sum must not be rounded to it. */
    void (*all_reduce_floats)(struct comm *c, struct queue *q, float *data, size_t n);
    /* The maximum of each element over the ranks, in place. NULL: not available. */
    void (*all_reduce_largest)(struct comm *c, struct queue *q, float *data, size_t n);
    /* all_reduce in two calls: between them the sum may run beside operations that are enqueued meanwhile and do
     * not touch the data. piece: below COMM_PIECES, not begun yet; pieces begin in their order and end in any, the same
     * on all ranks; all have ended before the rows are cut otherwise, and no other collective comes in between but
     * all_reduce_largest. NULL: not available, and rows are not cut. */
    void (*begin_sum)(struct comm *c, struct queue *q, int piece, void *data, size_t n);
    void (*end_sum)(struct comm *c, struct queue *q, int piece);
    /* out = the concatenation of the ranks' `in`; rank r contributes n[r] elements of the activation type. */
    void (*all_gather)(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n);
    /* ops->join_columns of the ranks' `in`, each of n_rows rows of its begin[rank + 1] - begin[rank] columns, as one
     * operation: out is [n_rows, begin[n_ranks]]. Available if takes_columns returns true (NULL: never). */
    bool (*takes_columns)(const struct comm *c, const struct queue *q, const int *begin, int n_rows);
    void (*all_gather_columns)(struct comm *c, struct queue *q, void *out, const void *in, const int *begin,
                               int n_rows);
    /* Polls for an asynchronous failure of the transport while collectives are under way: -1 and *e. NULL: there are
     * none. Any thread. */
    int (*check)(struct comm *c, struct err *e);
    void (*close)(struct comm *c);
};

#define COMM_PIECES 4 /* of a step's rows, at most */

/* Limits of the pieces into which the rows of a step are cut. */
struct comm_cut {
    int pieces;   /* at most, up to COMM_PIECES; below 2: rows are not cut */
    int rows;     /* of a piece, at least */
    size_t bytes; /* of a piece, at least */
    size_t most;  /* of all rows, at most; more are not cut */
};

/* Products of fewer rows do not fill a device with their tiles. */
#define COMM_CUT_ROWS  1024
#define COMM_CUT_BYTES ((size_t)4 << 20)

struct comm {
    const struct comm_ops *ops;
    int rank, n_ranks;
    struct comm_cut cut; /* equal on all ranks */
    unsigned under_way;  /* bit i: the sum of piece i has begun */
    void *impl;
    char name[32];               /* "NCCL 2.28.9": for messages */
    uint64_t n_all_reduces;      /* calls so far, also on one rank */
    struct observers *observers; /* borrowed; are told of every collective; NULL: none */
    bool lent;                   /* the transport belongs to another comm */
};

/* Host memory over MPI. Allocates its scratch memory. Local. */
int comm_open_mpi(struct comm *c, const struct world *w, struct err *e);

#ifdef LOCKSTEP_CUDA
/* GPU memory over NCCL, on the current device. Collective. */
int comm_open_nccl(struct comm *c, const struct world *w, struct err *e);
#endif

/* Put peer memory in front of *c's transport if all ranks have and permit it; reports the path of sums. world, ops and
 * the queue are borrowed until comm_close. Collective. */
void comm_open_peer(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q);

/* Lets *c, which has peer memory, cut rows into up to `pieces`, and takes memory for that. Collective; -1 on all ranks,
 * with *e on those that are the reason: the caller has to agree. */
int comm_cut_peer(struct comm *c, int pieces, struct err *e);

/* The best transport for the backend's memory. pieces: into which rows are cut at most; 0: the default of the device, 4
 * on CPUs, 2 on two GPUs that can and 1 on others. Collective; -1 as comm_cut_peer. */
int comm_open(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q, int pieces, struct err *e);

/* Refuses pieces that this number of ranks cannot have. comm_open refuses those that their transport cannot have. */
int comm_check_pieces(const struct ops *ops, int n_ranks, int pieces, struct err *e);

/* Device memory that comm_open takes for that at most. */
size_t comm_cut_bytes(const struct ops *ops, int n_ranks, int pieces);

/* A communicator with from's transport and its own count and observers. Communicators that share a transport use it one
 * at a time, in the same order on all ranks; `from` is closed last. Local. */
void comm_lend(struct comm *c, const struct comm *from);

/* data: aligned to 16 bytes. */
void comm_all_reduce(struct comm *c, struct queue *q, void *data, size_t n);
void comm_all_reduce_floats(struct comm *c, struct queue *q, float *data, size_t n);
/* The maximum of each element over the ranks, for backends that quantise activations; not counted in n_all_reduces. */
void comm_all_reduce_largest(struct comm *c, struct queue *q, float *data, size_t n);
void comm_all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n);
/* The same if the transport supports it; false: it does not, and nothing is enqueued. */
bool comm_all_gather_columns(struct comm *c, struct queue *q, void *out, const void *in, const int *begin, int n_rows);

/* The number of pieces into which a step's n rows of row_bytes are cut, so that the sum over the ranks of one piece
 * runs beside the operations of others; and the first row of one. They depend on nothing else but the communicator: a
 * token's row is in the same piece on all ranks. */
int comm_pieces(const struct comm *c, int n_rows, size_t row_bytes);
int comm_piece_begin(const struct comm *c, int n_rows, int n_pieces, int piece);
/* comm_all_reduce of one of n_pieces; counted once for all of them. Only comm_end_sum completes it, which does nothing
 * if no such sum is under way. */
void comm_begin_sum(struct comm *c, struct queue *q, int piece, int n_pieces, void *data, size_t n);
void comm_end_sum(struct comm *c, struct queue *q, int piece);
void comm_end_sums(struct comm *c, struct queue *q);
int comm_check(struct comm *c, struct err *e);
/* Collective, unless c has a shared transport. */
void comm_close(struct comm *c);

#endif
