/* rank/comm_nccl.c - collectives over NCCL on device memory, enqueued on the queue's stream.
 *
 * NCCL gives all ranks the same bits. On up to two ranks an element's sum does not depend on the number of elements
 * either; on more it may, by the rounding of the activation type, because a ring starts an element's sum at the rank that
 * its place in the message says. */
#include "rank/comm.h"
#include "rank/fatal.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

/* Up to here the kernels for symmetric memory win: 4.4-4.8 us against 6.7-10.5 us of the others for 16 KiB on 2 and 4 H200,
 * 6.2-6.9 against 6.9-10.7 us for 32 KiB; from 64 KiB on they lose (measured 2026-11-20, NCCL 2.28.9). */
#define SMALL_BYTES ((size_t)32 << 10)

struct comm_nccl {
    ncclComm_t comm;
    ncclWindow_t window; /* over comm.small */
};

/* Sticky: records the first failure, the step carries on in order. */
#define NCCL_TRY(e, c, call)                                                                       \
    do {                                                                                           \
        ncclResult_t rc_ = (call);                                                                 \
        if (rc_ != ncclSuccess)                                                                    \
            ERR((e), ERR_COMM, "%s: %s: %s", #call, ncclGetErrorString(rc_), ncclGetLastError(c)); \
    } while (0)

static ncclDataType_t nccl_type(enum dtype type)
{
    return type == DTYPE_F32 ? ncclFloat32 : type == DTYPE_F16 ? ncclFloat16 : ncclBfloat16;
}

static void all_reduce(struct comm *c, struct queue *q, void *data, size_t n)
{
    ncclComm_t comm = ((struct comm_nccl *)c->impl)->comm;
    NCCL_TRY(&q->err, comm, ncclAllReduce(data, data, n, nccl_type(q->act), ncclSum, comm, (cudaStream_t)q->stream));
}

/* Equal parts are what ncclAllGather does; else every rank broadcasts its own, all in one group. */
static void all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n)
{
    ncclComm_t comm = ((struct comm_nccl *)c->impl)->comm;
    bool equal = true;
    for (int r = 1; r < c->n_ranks; r++)
        equal = equal && n[r] == n[0];
    if (equal) {
        NCCL_TRY(&q->err, comm, ncclAllGather(in, out, n[0], nccl_type(q->act), comm, (cudaStream_t)q->stream));
        return;
    }
    NCCL_TRY(&q->err, comm, ncclGroupStart());
    char *at = out;
    for (int r = 0; r < c->n_ranks; r++) {
        if (n[r] > 0)
            NCCL_TRY(&q->err, comm, ncclBroadcast(in, at, n[r], nccl_type(q->act), r, comm, (cudaStream_t)q->stream));
        at += n[r] * dtype_bytes(q->act);
    }
    NCCL_TRY(&q->err, comm, ncclGroupEnd());
}

static void comm_nccl_close(struct comm *c)
{
    struct comm_nccl *n = c->impl;
    if (n == NULL)
        return;
    if (n->window != NULL)
        (void)ncclCommWindowDeregister(n->comm, n->window);
    if (c->small != NULL)
        (void)ncclMemFree(c->small);
    if (n->comm != NULL)
        (void)ncclCommDestroy(n->comm);
    free(n);
    c->impl = NULL;
}

static const struct comm_ops comm_nccl_ops = {"nccl", all_reduce, all_gather, comm_nccl_close};

/* Symmetric memory for small sums. Where GPUs do not reach each other's memory NCCL registers nothing, and sums in this
 * memory take its ordinary way. Collective. */
static void open_small(struct comm *c, struct comm_nccl *n, const struct world *w, struct err *e)
{
    NCCL_TRY(e, n->comm, ncclMemAlloc(&c->small, SMALL_BYTES));
    fatal_agree((struct world *)w, e);
    NCCL_TRY(e, n->comm, ncclCommWindowRegister(n->comm, c->small, SMALL_BYTES, &n->window, NCCL_WIN_COLL_SYMMETRIC));
    c->small_bytes = SMALL_BYTES;
}

int comm_open_nccl(struct comm *c, const struct world *w, struct err *e)
{
    ncclUniqueId id;
    memset(c, 0, sizeof *c);
    memset(&id, 0, sizeof id);
    c->ops = &comm_nccl_ops;
    c->rank = w->rank;
    c->n_ranks = w->n_ranks;
    if (w->n_ranks == 1)
        return 0;
    struct comm_nccl *n = err_calloc(e, 1, sizeof *n, "NCCL communicator");
    c->impl = n;
    if (w->rank == 0)
        NCCL_TRY(e, NULL, ncclGetUniqueId(&id));
    fatal_agree((struct world *)w, e); /* a rank that waits for one that failed would wait for ever */
    MPI_CHECK(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, w->comm));
    NCCL_TRY(e, NULL, ncclCommInitRank(&n->comm, w->n_ranks, id, w->rank));
    fatal_agree((struct world *)w, e);
    open_small(c, n, w, e);
    return e->code == ERR_NONE ? 0 : -1;
}
