/* rank/comm/peers.h - memory of each rank's device that the other devices write to (kernels/peer.h): either every rank
 * reaches all of it, or none is used. */
#ifndef COMM_PEERS_H
#define COMM_PEERS_H

#include "kernels/peer.h"
#include "rank/world/world.h"

struct peers {
    void *memory[PEER_MAX_RANKS]; /* each rank's memory, as mapped by this one */
    int rank, n_ranks;
};

/* Whether the ranks may use each other's memory: not if one of them is configured not to. Collective. */
bool peers_wanted(const struct world *w);

/* mine: this rank's memory, from ops->alloc, borrowed until peers_close. NULL: all ranks reach all memory. Otherwise
 * the reason, as the end of a sentence, and nothing is open; rank 0 gets another rank's reason if it has none itself.
 * Collective. */
const char *peers_open(struct peers *p, void *mine, const struct world *w, const struct ops *ops, struct queue *q);

/* Waits for the queue. Memory that another rank has mapped must not be freed; after this call no rank has it mapped.
 * Collective. */
void peers_close(struct peers *p, const struct world *w, const struct ops *ops, struct queue *q);

/* NULL on all ranks, or a reason on all of them: `why`, or that of other ranks. Collective. */
const char *peers_agree(const char *why, const struct world *w);

#endif
