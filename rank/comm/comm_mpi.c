/* rank/comm/comm_mpi.c - collectives over MPI on host memory, float only (the CPU backend's activation type).
 *
 * MPI guarantees neither that MPI_Allreduce gives every rank the same bits nor that a sum's order is the same for every
 * count. Both matter here: every rank samples for itself, and a request's output must not depend on its batch. So the
 * ranks exchange parts and add them themselves, always in rank order: small messages are gathered and added by every
 * rank; for large ones each rank adds its own stretch and the sums are gathered, LARGE_COUNT elements at a time. An
 * element's sum is the same in all cases. */
#include "rank/comm/comm.h"
#include "rank/world/fatal.h"

#include <stdlib.h>
#include <string.h>

/* Up to here one all-gather beats two exchanges (2-4 ranks on shared memory). */
#define SMALL_COUNT 16384
#define LARGE_COUNT (1 << 20) /* elements whose partial sums fit into the scratch memory */

struct comm_mpi {
    MPI_Comm comm;
    float *scratch;                /* [n_ranks * SMALL_COUNT], and at least one stretch of LARGE_COUNT per rank */
    int *count, *offset;           /* [n_ranks] of each rank's stretch */
    int *part_count, *part_offset; /* [n_ranks] of the exchanged parts */
};

/* data[i] = part_0[i] + part_1[i] + .. in rank order; part r begins at parts + r * n. */
static void add_in_rank_order(float *data, const float *parts, size_t n, int n_ranks)
{
    memcpy(data, parts, n * sizeof *data);
    for (int r = 1; r < n_ranks; r++) {
        const float *part = parts + (size_t)r * n;
        for (size_t i = 0; i < n; i++)
            data[i] += part[i];
    }
}

static void all_reduce_small(struct comm *c, struct comm_mpi *m, float *data, int n)
{
    MPI_CHECK(MPI_Allgather(data, n, MPI_FLOAT, m->scratch, n, MPI_FLOAT, m->comm));
    add_in_rank_order(data, m->scratch, (size_t)n, c->n_ranks);
}

static void all_reduce_large(struct comm *c, struct comm_mpi *m, float *data, int n)
{
    for (int r = 0; r < c->n_ranks; r++) {
        m->offset[r] = (int)((int64_t)n * r / c->n_ranks);
        m->count[r] = (int)((int64_t)n * (r + 1) / c->n_ranks) - m->offset[r];
    }
    int mine = m->count[c->rank];
    for (int r = 0; r < c->n_ranks; r++) {
        m->part_count[r] = mine;
        m->part_offset[r] = r * mine;
    }
    MPI_CHECK(MPI_Alltoallv(data, m->count, m->offset, MPI_FLOAT, m->scratch, m->part_count, m->part_offset, MPI_FLOAT,
                            m->comm));
    add_in_rank_order(data + m->offset[c->rank], m->scratch, (size_t)mine, c->n_ranks);
    MPI_CHECK(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, m->count, m->offset, MPI_FLOAT, m->comm));
}

static void all_reduce(struct comm *c, struct queue *q, void *data, size_t n)
{
    (void)q;
    float *at = data;
    for (size_t part; n > 0; n -= part, at += part) {
        part = n < LARGE_COUNT ? n : LARGE_COUNT;
        if (part <= SMALL_COUNT)
            all_reduce_small(c, c->impl, at, (int)part);
        else
            all_reduce_large(c, c->impl, at, (int)part);
    }
}

static void all_reduce_floats(struct comm *c, struct queue *q, float *data, size_t n)
{
    all_reduce(c, q, data, n);
}

/* At once: MPI makes progress within its calls only, so nothing would run beside. */
static void begin_sum(struct comm *c, struct queue *q, int piece, void *data, size_t n)
{
    (void)piece;
    all_reduce(c, q, data, n);
}

static void end_sum(struct comm *c, struct queue *q, int piece)
{
    (void)c, (void)q, (void)piece;
}

/* MPI's own operation suffices: a maximum does not depend on the order, and no value is NaN. */
static void all_reduce_largest(struct comm *c, struct queue *q, float *data, size_t n)
{
    const struct comm_mpi *m = c->impl;
    (void)q;
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_MAX, m->comm));
}

static void all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n)
{
    struct comm_mpi *m = c->impl;
    (void)q;
    size_t offset = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        m->count[r] = (int)n[r];
        m->offset[r] = (int)offset;
        offset += n[r];
    }
    MPI_CHECK(MPI_Allgatherv(in, m->count[c->rank], MPI_FLOAT, out, m->count, m->offset, MPI_FLOAT, m->comm));
}

static void comm_mpi_close(struct comm *c)
{
    struct comm_mpi *m = c->impl;
    free(m->scratch);
    free(m->count);
    free(m);
    c->impl = NULL;
}

static const struct comm_ops comm_mpi_ops = {.name = "mpi",
                                             .ordered = true,
                                             .floats_ordered = true,
                                             .all_reduce = all_reduce,
                                             .all_reduce_floats = all_reduce_floats,
                                             .all_reduce_largest = all_reduce_largest,
                                             .begin_sum = begin_sum,
                                             .end_sum = end_sum,
                                             .all_gather = all_gather,
                                             .close = comm_mpi_close};

int comm_open_mpi(struct comm *c, const struct world *w, struct err *e)
{
    memset(c, 0, sizeof *c);
    struct comm_mpi *m = err_calloc(e, 1, sizeof *m, "MPI communicator");
    if (m == NULL)
        return -1;
    size_t ranks = (size_t)w->n_ranks, stretch = LARGE_COUNT / ranks + 1;
    m->comm = w->comm;
    m->scratch = err_calloc(e, ranks * (stretch > SMALL_COUNT ? stretch : SMALL_COUNT), sizeof(float), "MPI scratch");
    m->count = err_calloc(e, 4 * ranks, sizeof(int), "MPI counts");
    if (m->count != NULL) {
        m->offset = m->count + ranks;
        m->part_count = m->count + 2 * ranks;
        m->part_offset = m->count + 3 * ranks;
    }
    c->ops = &comm_mpi_ops;
    c->cut = (struct comm_cut){COMM_PIECES, COMM_CUT_ROWS, COMM_CUT_BYTES, SIZE_MAX};
    c->rank = w->rank;
    c->n_ranks = w->n_ranks;
    c->impl = m;
    return e->code == ERR_NONE ? 0 : -1;
}
