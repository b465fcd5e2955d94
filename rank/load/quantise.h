/* rank/load/quantise.h - weights of 16 or 32 bits become FP8 once they are loaded: codes of E4M3 and a scale for each
 * row of the whole matrix, so that the numbers do not depend on how many ranks share it. */
#ifndef LOAD_QUANTISE_H
#define LOAD_QUANTISE_H

#include "rank/model/network.h"
#include "rank/world/world.h"

/* Weights in the form that the network's config asks for (weights_fp8, head_fp8); a head that is the embedding becomes
 * a second matrix. The memory of what a matrix was is given back matrix by matrix. Collective over the model's ranks;
 * -1 on all of them if one has failed, with *e where it has. */
int load_quantise(struct network *n, const struct world *w, const struct ops *ops, struct queue *q, struct err *e);

#endif
