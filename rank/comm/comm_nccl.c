/* rank/comm/comm_nccl.c - collectives over NCCL on device memory, enqueued on the queue's stream.
 *
 * NCCL gives all ranks the same bits. On up to two ranks an element's sum does not depend on the number of elements
 * either; on more it may, by the rounding of the activation type, because a ring starts an element's sum at a rank that
 * depends on the element's position in the message. */
#include "rank/comm/comm.h"
#include "rank/world/fatal.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct comm_nccl {
    ncclComm_t comm;
};

/* Sticky: records the first failure; the step continues in order. */
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

static void all_reduce_floats(struct comm *c, struct queue *q, float *data, size_t n)
{
    ncclComm_t comm = ((struct comm_nccl *)c->impl)->comm;
    NCCL_TRY(&q->err, comm, ncclAllReduce(data, data, n, ncclFloat32, ncclSum, comm, (cudaStream_t)q->stream));
}

/* ncclAllGather handles equal parts; otherwise every rank broadcasts its own part, all in one group. */
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

/* Errors of NCCL's own threads and of other ranks, on which its kernels would wait forever. */
static int check_errors(struct comm *c, struct err *e)
{
    struct comm_nccl *n = c->impl;
    ncclResult_t state = ncclSuccess;
    if (n == NULL || n->comm == NULL)
        return 0;
    ncclResult_t rc = ncclCommGetAsyncError(n->comm, &state);
    if (rc == ncclSuccess && (state == ncclSuccess || state == ncclInProgress))
        return 0;
    return ERR(e, ERR_COMM, "NCCL: %s", ncclGetErrorString(rc != ncclSuccess ? rc : state));
}

static void comm_nccl_close(struct comm *c)
{
    struct comm_nccl *n = c->impl;
    if (n == NULL)
        return;
    if (n->comm != NULL)
        (void)ncclCommDestroy(n->comm);
    free(n);
    c->impl = NULL;
}

static const struct comm_ops comm_nccl_ops = {.name = "nccl",
                                              .all_reduce = all_reduce,
                                              .all_reduce_floats = all_reduce_floats,
                                              .all_gather = all_gather,
                                              .check = check_errors,
                                              .close = comm_nccl_close};

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
    fatal_agree((struct world *)w, e); /* a rank that waits for a failed one would wait forever */
    MPI_CHECK(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, w->comm));
    NCCL_TRY(e, NULL, ncclCommInitRank(&n->comm, w->n_ranks, id, w->rank));
    fatal_agree((struct world *)w, e);
    int v = 0;
    (void)ncclGetVersion(&v);
    (void)snprintf(c->name, sizeof c->name, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return e->code == ERR_NONE ? 0 : -1;
}
