/* rank/measure/ranks_pace.h - what reading weights and sums over the ranks cost here, and whether more or fewer ranks
 * had better share the model: see partition/pace.h. */
#ifndef MEASURE_RANKS_PACE_H
#define MEASURE_RANKS_PACE_H

#include "rank/step/engine.h"

/* Log it for a model with experts whose ranks sum; n_ranks: all, of which a replica has some. Before the first step.
 * Collective over the replica. */
void ranks_pace_say(struct engine *g, int n_ranks);

#endif
