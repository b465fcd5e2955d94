/* kernels/cpu/pool.c - see kernels/pool.h: the host's memory needs none. */
#include "kernels/pool.h"
#include "kernels/cpu/cpu.h"

static void do_nothing(struct queue *q)
{
    (void)q;
}

const struct pool_ops pool_ops_cpu = {.open = do_nothing, .take = cpu_alloc, .trim = do_nothing};
