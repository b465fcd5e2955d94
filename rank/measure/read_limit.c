/* rank/measure/read_limit.c - see read_limit.h. */
#include "rank/measure/read_limit.h"
#include "base/clock.h"
#include "rank/world/fatal.h"

#include <math.h>

/* A size that leaves at least half of the device's memory free. */
static size_t choose_bytes(const struct ops *ops, struct queue *q, size_t least, size_t most)
{
    size_t bytes = most;
    while (bytes > least && 2 * bytes > ops->free_memory(q))
        bytes /= 2;
    return bytes > least ? bytes : least;
}

void read_limit_measure(struct read_limit *r, struct world *w, const struct ops *ops, struct queue *q,
                        size_t least_bytes, size_t most_bytes, int passes, struct err *e)
{
    size_t bytes = choose_bytes(ops, q, least_bytes, most_bytes);
    void *data = ops->alloc(q, bytes);
    if (data == NULL)
        ERR(e, ERR_MEMORY, "%s", q->err.text);
    fatal_agree(w, e);
    struct weight all = {.data = data, .type = DTYPE_F32, .rows = 16, .cols = (int)(bytes / 64)};
    ops->fill_noise(q, &all, 1, 0, 1);
    ops->wait(q);
    *r = (struct read_limit){0};
    for (int i = 0; i < passes; i++) {
        MPI_CHECK(MPI_Barrier(w->comm));
        double started = seconds_now(), seconds, slowest, moved = (double)bytes, sum;
        volatile uint64_t sink = ops->read_stream(q, data, bytes);
        (void)sink;
        seconds = seconds_now() - started;
        MPI_CHECK(MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, w->comm));
        MPI_CHECK(MPI_Allreduce(&moved, &sum, 1, MPI_DOUBLE, MPI_SUM, w->comm));
        r->mine = fmax(r->mine, moved / seconds);
        r->together = fmax(r->together, sum / slowest);
    }
    ops->free(q, data);
}
