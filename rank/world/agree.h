/* rank/world/agree.h - agreement of the job's ranks when some of them have failed. */
#ifndef WORLD_AGREE_H
#define WORLD_AGREE_H

#include "rank/world/world.h"

/* Whether any rank has failed. -1: none has, and *e is unchanged; otherwise the lowest rank that has, and *e is its
 * error on every rank, preceded by rank and host if there are several ranks. Collective over all ranks of the job,
 * whether w is its world or a replica's; over the replica's ranks if that is apart. Does not end the job: for failures
 * that are reported in an answer. For others: fatal_agree. */
int agree(const struct world *w, struct err *e);

/* The same for callers whose own caller agrees: whether any rank has failed, with *e unchanged on each. */
bool agree_failed(const struct world *w, const struct err *e);

/* The error of a rank, preceded by its name: "rank 2/4 on host: ..."; for a single rank unchanged. */
struct err agree_named(int rank, int n_ranks, const char *host, const struct err *e);

#endif
