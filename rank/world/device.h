/* rank/world/device.h - the backend that all ranks agree on, and this rank's device. */
#ifndef WORLD_DEVICE_H
#define WORLD_DEVICE_H

#include "base/choices.h"
#include "kernels/ops.h"
#include "rank/world/places.h"
#include "rank/world/world.h"

/* Does this build contain the chosen backend? Local. */
int device_check(enum device_choice choice, struct err *e);

/* Whether this choice selects GPUs, as far as this rank sees. Initialises the driver unless it is the CPU. Local. */
bool device_is_gpu(enum device_choice choice);

/* Choose the backend (DEVICE_AUTO: GPUs if every rank sees one) and open a queue on the rank's device of it: the GPU
 * with the rank's number on its node, or the only visible one. Two ranks on one GPU are refused. On GPUs, rank 0 prints
 * the placement (rank/world/places.h), and w records whether GPUs of a host do not reach each other. Collective; after
 * a failure the ranks still have to agree. */
int device_open(const struct ops **ops, struct queue *q, enum device_choice choice, enum dtype weights, int n_threads,
                struct world *w, struct err *e);

/* The placement, for an open queue or, if `opened` is false, one that could not be opened: all[n_ranks] of every rank,
 * equal on all; link[n_ranks]: how this rank's device reaches theirs. On CPUs places have no id. Collective. */
void device_places(struct rank_place *all, enum peer_link *link, const struct ops *ops, struct queue *q,
                   const struct world *w, bool opened);

#endif
