/* rank/fit.c - see fit.h. */
#include "rank/fit.h"
#include "rank/fatal.h"

#include <limits.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

/* Bytes of every role on this rank, in the checkpoint's types. A config that contradicts the checkpoint fails here, by
 * the tensor's name, before its sizes are called too large for this machine. */
static size_t expected_bytes(const struct model_config *m, const struct shard *s, const struct checkpoint *c,
                             struct err *e)
{
    struct weight_map map = {0};
    size_t bytes = weight_map_build(&map, m, s, c, e) == 0 ? weight_map_bytes(&map) : 0;
    weight_map_free(&map);
    return bytes;
}

int fit_weights(const struct model_config *m, const struct shard *s, const struct checkpoint *c, const struct world *w,
                const struct ops *ops, struct queue *q, struct err *e)
{
    unsigned long long mine = expected_bytes(m, s, c, e), all = mine;
    if (ops->shares_host_memory)
        MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, w->node));
    size_t available = ops->free_memory(q);
    if (available > 0 && all > available)
        return ERR(e, ERR_MEMORY,
                   "weights need %.2f GiB on this %s, %.2f GiB are free: use more nodes or a smaller model",
                   (double)all / GIB, ops->shares_host_memory ? "host" : "device", (double)available / GIB);
    return e->code == ERR_NONE ? 0 : -1;
}

int fit_kv(struct limits *l, const struct model_config *m, const struct shard *s, const struct world *w,
           const struct ops *ops, struct queue *q, int64_t kv_bytes, struct err *e)
{
    size_t block = network_kv_block_bytes(m, s, q->act);
    size_t available = kv_bytes >= 0 ? (size_t)kv_bytes : ops->free_memory(q) / 2;
    if (kv_bytes < 0 && ops->shares_host_memory)
        available /= (size_t)w->n_node_ranks;
    size_t blocks = block > 0 ? available / block : INT_MAX;
    int mine = blocks < (size_t)l->n_blocks ? (int)blocks : l->n_blocks, all = mine;
    MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, w->comm));
    l->n_blocks = all;
    if (all < 1 && mine < 1)
        return ERR(e, ERR_MEMORY, "KV cache: 16 tokens need %zu bytes on this rank, %zu are available%s", block,
                   available, kv_bytes >= 0 ? " (--kv-cache-memory-bytes)" : "");
    return 0;
}
