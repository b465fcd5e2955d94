/* commands/models/model_memory.c - see model_memory.h. */
#include "commands/models/model_memory.h"
#include "base/log.h"
#include "rank/instance/fit.h"
#include "rank/world/fatal.h"

#define GIB   (1024.0 * 1024.0 * 1024.0)
#define SHARE 8 /* of ten parts of the free memory, for models */

/* The memory of the rank that has the least. Collective. */
static int64_t memory_of_rank(const struct instance *ground, const struct world *w)
{
    const struct ops *ops = ground->ops;
    const char *limit;
    size_t available = fit_free_memory(ops, (struct queue *)&ground->q, w->n_node_ranks, &limit) / 10 * SHARE;
    long long mine = (long long)(available / (ops->shares_host_memory ? (size_t)w->n_node_ranks : 1)), least = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &least, 1, MPI_LONG_LONG, MPI_MIN, w->comm));
    return least;
}

/* memory: that models have by default. */
static void warn_of_memory(int64_t given, int64_t memory)
{
    double most = (double)memory / SHARE * 10;
    if ((double)given > most)
        log_warn(
            "--model-memory: found %.2f GiB, expected at most the %.2f GiB that are free on the rank that has least",
            (double)given / GIB, most / GIB);
}

static int check_room(const struct model_memory *m, struct err *e)
{
    if (m->kv >= (int64_t)KV_UNIT_LEAST && m->kv < m->all)
        return 0;
    return ERR(
        e, ERR_USAGE,
        "keys and values of all models: found %lld bytes (--kv-cache-memory-bytes), expected %zu at least, and less "
        "than the %lld that models may take in all (--model-memory)",
        (long long)m->kv, KV_UNIT_LEAST, (long long)m->all);
}

void model_memory_share(struct model_memory *m, const struct instance *ground, int64_t all, int64_t kv, struct world *w,
                        struct err *e)
{
    int64_t there = memory_of_rank(ground, w);
    if (w->rank == 0)
        warn_of_memory(all, there);
    m->all = all > 0 ? all : there;
    m->kv = kv >= 0 ? kv : m->all / 2;
    MPI_CHECK(MPI_Bcast(m, sizeof *m, MPI_BYTE, 0, w->comm));
    (void)check_room(m, e);
    fatal_agree(w, e);
}
