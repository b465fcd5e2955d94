/* rank/comm.c - counting around the transport's collectives. */
#include "rank/comm.h"

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
    if (c->n_ranks > 1 && n > 0)
        c->ops->all_reduce(c, q, data, n);
}

void comm_all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n)
{
    c->ops->all_gather(c, q, out, in, n);
}

void comm_close(struct comm *c)
{
    if (c->ops != NULL)
        c->ops->close(c);
    c->ops = NULL;
}
