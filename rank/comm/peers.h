/* rank/comm/peers.h - memory of each rank's device that the others' devices write to (kernels/peer.h): all ranks reach
 * all, or none. */
#ifndef COMM_PEERS_H
#define COMM_PEERS_H

#include "kernels/peer.h"
#include "rank/world/world.h"

struct peers {
    void *memory[PEER_MAX_RANKS]; /* each rank's, as this one reaches it */
    int rank, n_ranks;
};

/* Whether the ranks may use each other's memory: none may if one of them is configured not to. Collective. */
bool peers_wanted(const struct world *w);

/* mine: this rank's, of ops->alloc, its owner's until peers_close. NULL: all ranks reach all memory. Else the reason,
 * as the end of a sentence, and nothing is open: on rank 0 that of another rank if it has none itself. Collective. */
const char *peers_open(struct peers *p, void *mine, const struct world *w, const struct ops *ops, struct queue *q);

/* Waits for the queue. Memory that another rank has mapped must not be freed; after this call no rank has it mapped.
 * Collective. */
void peers_close(struct peers *p, const struct world *w, const struct ops *ops, struct queue *q);

/* NULL on all ranks, or on all of them a reason: why, or that of others. Collective. */
const char *peers_agree(const char *why, const struct world *w);

#endif
