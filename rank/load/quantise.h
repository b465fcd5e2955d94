/* rank/load/quantise.h - converts 16-bit and 32-bit weights to FP8 after loading: E4M3 codes with one scale per row of
 * the whole matrix, so that the numbers do not depend on the number of ranks. */
#ifndef LOAD_QUANTISE_H
#define LOAD_QUANTISE_H

#include "rank/model/network.h"
#include "rank/world/world.h"

/* Converts the weights that the network's config selects (weights_fp8, head_fp8); a head that shares the embedding's
 * matrix becomes a second one. Old matrices are freed one by one. Collective over the model's ranks; -1 on all of them
 * if one has failed, with *e there. */
int load_quantise(struct network *n, const struct world *w, const struct ops *ops, struct queue *q, struct err *e);

#endif
