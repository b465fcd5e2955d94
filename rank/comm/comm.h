/* rank/comm/comm.h - the collectives of a step, on device memory. comm_mpi.c serves host memory, comm_nccl.c GPUs,
 * comm_peer.c those of one host, before NCCL.
 *
 * A transport belongs to a set of ranks, not to a model: what it has of memory suffices for sums of any size. So models
 * that live on the same ranks, and whose steps alternate there, are lent one. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "kernels/ops.h"
#include "rank/world/world.h"

struct comm;
struct observers;

struct comm_ops {
    const char *name;
    /* Sum n elements of the queue's activation type over the ranks, in place; every rank gets the same bits, and on up
     * to two ranks an element's sum does not depend on n. Enqueued; collective: all ranks, same n, same order. */
    void (*all_reduce)(struct comm *c, struct queue *q, void *data, size_t n);
    /* The same of floats, whatever the activation type: a few, whose sum must not be rounded to it. */
    void (*all_reduce_floats)(struct comm *c, struct queue *q, float *data, size_t n);
    /* The largest of each over the ranks, in place. NULL: not available. */
    void (*all_reduce_largest)(struct comm *c, struct queue *q, float *data, size_t n);
    /* out = the ranks' `in` one after the other; rank r gives n[r] elements of the activation type. */
    void (*all_gather)(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n);
    /* ops->join_columns of the ranks' `in`, each of n_rows rows of its begin[rank + 1] - begin[rank] columns, as one
     * operation: out is [n_rows, begin[n_ranks]]. Available where takes_columns says so (NULL: nowhere). */
    bool (*takes_columns)(const struct comm *c, const struct queue *q, const int *begin, int n_rows);
    void (*all_gather_columns)(struct comm *c, struct queue *q, void *out, const void *in, const int *begin,
                               int n_rows);
    /* A failure that the transport knows of by itself, while collectives are under way: -1 and *e. NULL: none ever. Any
     * thread may ask. */
    int (*check)(struct comm *c, struct err *e);
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    int rank, n_ranks;
    void *impl;
    char name[32];               /* "NCCL 2.28.9": for messages */
    uint64_t n_all_reduces;      /* calls so far, also on one rank */
    struct observers *observers; /* borrowed; hear of every collective; NULL: there are none */
    bool lent;                   /* the transport is another comm's */
};

/* Host memory over MPI. Allocates its scratch here. Local. */
int comm_open_mpi(struct comm *c, const struct world *w, struct err *e);

#ifdef LOCKSTEP_CUDA
/* GPU memory over NCCL, on the device that is current. Collective. */
int comm_open_nccl(struct comm *c, const struct world *w, struct err *e);
#endif

/* Put peer memory before the transport that *c is, if all ranks have it and want it; says which way sums take. world,
 * ops and the queue are borrowed until comm_close. Collective. */
void comm_open_peer(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q);

/* The best transport for the backend's memory. Collective. */
int comm_open(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q, struct err *e);

/* from's transport, with a count and observers of its own. Communicators that share a transport use it one at a time,
 * in the same order on all ranks; `from` is closed after them. Local. */
void comm_lend(struct comm *c, const struct comm *from);

/* data: at a multiple of 16 bytes. */
void comm_all_reduce(struct comm *c, struct queue *q, void *data, size_t n);
void comm_all_reduce_floats(struct comm *c, struct queue *q, float *data, size_t n);
/* The largest of each over the ranks, where the backend quantises activations; not counted in n_all_reduces. */
void comm_all_reduce_largest(struct comm *c, struct queue *q, float *data, size_t n);
void comm_all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n);
/* The same where the transport can; false: it cannot, and nothing is enqueued. */
bool comm_all_gather_columns(struct comm *c, struct queue *q, void *out, const void *in, const int *begin, int n_rows);
int comm_check(struct comm *c, struct err *e);
/* Collective, unless c is lent. */
void comm_close(struct comm *c);

#endif
