/* rank/comm.c - counting and timing around the transport's collectives. */
#include "rank/comm.h"
#include "rank/meter.h"

int comm_open(struct comm *c, const struct world *w, const struct ops *ops, size_t max_count, struct err *e)
{
#ifdef LOCKSTEP_CUDA
    if (ops == &ops_cuda)
        return comm_open_nccl(c, w, e);
#endif
    (void)ops;
    return comm_open_mpi(c, w, max_count, e);
}

void comm_all_reduce(struct comm *c, struct queue *q, void *data, size_t n)
{
    c->n_all_reduces++;
    if (c->n_ranks == 1 || n == 0)
        return;
    meter_enter(c->meter, METER_ALL_REDUCE);
    c->ops->all_reduce(c, q, data, n);
    meter_enter(c->meter, METER_COMPUTE);
}

void comm_all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n)
{
    meter_enter(c->meter, METER_ALL_GATHER);
    c->ops->all_gather(c, q, out, in, n);
    meter_enter(c->meter, METER_COMPUTE);
}

void comm_close(struct comm *c)
{
    if (c->ops != NULL)
        c->ops->close(c);
    c->ops = NULL;
}
