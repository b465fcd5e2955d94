/* rank/measure/ranks_pace.h - measures the cost of reading weights and of sums over the ranks, and reports whether more
 * or fewer ranks should share the model: see partition/pace.h. */
#ifndef MEASURE_RANKS_PACE_H
#define MEASURE_RANKS_PACE_H

#include "rank/step/engine.h"

/* Log it for a model with experts on several ranks; n_ranks: of the job, of which a replica has a part. advise: without
 * --verbose, too, one line says so if another number is clearly faster. Before the first step. Collective over the
 * replica. */
void ranks_pace_say(struct engine *g, int n_ranks, bool advise);

#endif
