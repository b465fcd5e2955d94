/* rank/comm_nccl.c - collectives over NCCL on device memory, enqueued on the queue's stream.
 *
 * NCCL gives all ranks the same bits. On up to two ranks an element's sum does not depend on the number of elements
 * either; on more it may, by the rounding of the activation type, because a ring starts an element's sum at the rank that
 * its place in the message says. */
#include "base/log.h"
#include "base/opt.h"
#include "rank/comm.h"
#include "rank/fatal.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* Errors of NCCL's own threads and of other ranks: its kernels only wait for ever. */
static int check(struct comm *c, struct err *e)
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

static void close_small(struct comm *c, struct comm_nccl *n)
{
    if (n->window != NULL)
        (void)ncclCommWindowDeregister(n->comm, n->window);
    if (c->small != NULL)
        (void)ncclMemFree(c->small);
    n->window = NULL;
    c->small = NULL;
    c->small_bytes = 0;
}

static void comm_nccl_close(struct comm *c)
{
    struct comm_nccl *n = c->impl;
    if (n == NULL)
        return;
    close_small(c, n);
    if (n->comm != NULL)
        (void)ncclCommDestroy(n->comm);
    free(n);
    c->impl = NULL;
}

static const struct comm_ops comm_nccl_ops = {
    .name = "nccl", .all_reduce = all_reduce, .all_gather = all_gather, .check = check, .close = comm_nccl_close};

static bool on_all(const struct world *w, bool mine)
{
    int yes = mine, all = 0;
    MPI_CHECK(MPI_Allreduce(&yes, &all, 1, MPI_INT, MPI_MIN, w->comm));
    return all != 0;
}

/* NCCL 2.28 keeps P2P out of its rings when it is told to, but not out of its symmetric kernels: so we do. */
static bool p2p_wanted(void)
{
    const char *off = options_environment("NCCL_P2P_DISABLE"), *level = options_environment("NCCL_P2P_LEVEL");
    return (off == NULL || strcmp(off, "0") == 0) &&
           (level == NULL || (strcasecmp(level, "LOC") != 0 && strcmp(level, "0") != 0));
}

/* Where the GPUs do not reach each other NCCL registers no more than the memory on its own host, and says so by nothing but
 * the handle, which lies on the device only when its kernels can use it. */
static bool is_symmetric(ncclWindow_t window)
{
    struct cudaPointerAttributes where;
    if (window == NULL || cudaPointerGetAttributes(&where, window) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return where.type == cudaMemoryTypeDevice;
}

/* Symmetric memory for small sums, on all ranks or on none. Collective. */
static bool open_small(struct comm *c, struct comm_nccl *n, const struct world *w)
{
    if (!on_all(w, ncclMemAlloc(&c->small, SMALL_BYTES) == ncclSuccess)) {
        close_small(c, n);
        return false;
    }
    ncclResult_t rc = ncclCommWindowRegister(n->comm, c->small, SMALL_BYTES, &n->window, NCCL_WIN_COLL_SYMMETRIC);
    if (!on_all(w, rc == ncclSuccess && is_symmetric(n->window))) {
        close_small(c, n);
        return false;
    }
    c->small_bytes = SMALL_BYTES;
    return true;
}

/* Rank 0 says which way sums go; a warning where it is a slow one. */
static void say_transport(const struct world *w, bool p2p, bool symmetric)
{
    char name[32] = "NCCL";
    int v = 0;
    if (ncclGetVersion(&v) == ncclSuccess)
        (void)snprintf(name, sizeof name, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    if (symmetric)
        log_info("%s: symmetric memory for sums of up to %zu KiB", name, SMALL_BYTES >> 10);
    else if (!p2p)
        log_warn(
            "%s: P2P is switched off (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL): sums within a host go through host memory",
            name);
    else if (w->gpus_apart)
        log_warn("%s: GPUs without P2P: sums within a host go through host memory", name);
    else if (!w->on_one_host)
        log_info("%s: no symmetric memory across hosts", name);
    else
        log_warn("%s: no symmetric memory here, small sums take NCCL's ordinary, slower way", name);
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
    bool p2p = on_all(w, p2p_wanted());
    say_transport(w, p2p, p2p && open_small(c, n, w));
    return e->code == ERR_NONE ? 0 : -1;
}
