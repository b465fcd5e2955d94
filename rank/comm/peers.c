/* rank/comm/peers.c - see peers.h. */
#include "rank/comm/peers.h"
#include "base/environment.h"
#include "rank/world/fatal.h"

#include <string.h>
#include <strings.h>

const char *peers_agree(const char *why, const struct world *w)
{
    int mine = why == NULL, all = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, w->comm));
    return all || why != NULL ? why : "something that another rank lacks";
}

/* Settings of NCCL apply here too. */
bool peers_wanted(const struct world *w)
{
    const char *off = environment_value("NCCL_P2P_DISABLE"), *level = environment_value("NCCL_P2P_LEVEL");
    bool mine = (off == NULL || strcmp(off, "0") == 0) &&
                (level == NULL || (strcasecmp(level, "LOC") != 0 && strcmp(level, "0") != 0));
    return peers_agree(mine ? NULL : "not wanted", w) == NULL;
}

/* Opens the memory of all ranks from their handles; false: some could not be opened. */
static bool connect_all(struct peers *p, const unsigned char (*handle)[PEER_HANDLE_BYTES], const struct ops *ops,
                        struct queue *q)
{
    bool all = true;
    for (int r = 0; r < p->n_ranks; r++)
        if (r != p->rank) {
            p->memory[r] = ops->peer->connect(q, handle[r]);
            all = all && p->memory[r] != NULL;
        }
    return all;
}

const char *peers_open(struct peers *p, void *mine, const struct world *w, const struct ops *ops, struct queue *q)
{
    unsigned char handle[PEER_HANDLE_BYTES] = {0}, all[PEER_MAX_RANKS][PEER_HANDLE_BYTES];
    *p = (struct peers){.rank = w->rank, .n_ranks = w->n_ranks};
    if (!w->on_one_host)
        return "ranks on more than one host";
    if (w->n_ranks > PEER_MAX_RANKS)
        return "more than 8 ranks";
    p->memory[w->rank] = mine;
    if (w->n_ranks == 1)
        return NULL;
    if (!peers_wanted(w))
        return "P2P switched off (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL)";
    const char *why =
        peers_agree(ops->peer->share(q, mine, handle) ? NULL : "memory that other processes cannot open", w);
    if (why != NULL)
        return why;
    MPI_CHECK(MPI_Allgather(handle, sizeof handle, MPI_BYTE, all, sizeof handle, MPI_BYTE, w->comm));
    bool connected = connect_all(p, (const unsigned char(*)[PEER_HANDLE_BYTES])all, ops, q);
    why = peers_agree(connected ? NULL : "GPUs that do not reach each other's memory", w);
    if (why != NULL)
        peers_close(p, w, ops, q);
    return why;
}

void peers_close(struct peers *p, const struct world *w, const struct ops *ops, struct queue *q)
{
    ops->wait(q);
    MPI_CHECK(MPI_Barrier(w->comm)); /* no rank writes any more */
    for (int r = 0; r < p->n_ranks; r++)
        if (r != p->rank)
            ops->peer->disconnect(q, p->memory[r]);
    memset(p, 0, sizeof *p);
    MPI_CHECK(MPI_Barrier(w->comm));
}
