/* rank/world/agree.h - agreement of the job's ranks when some of them have failed. */
#ifndef WORLD_AGREE_H
#define WORLD_AGREE_H

#include "rank/world/world.h"

/* Whether any rank has failed. -1: none has, and *e is left alone; else the lowest rank that has, and *e is its
 * error on every rank, with rank and host before its text where there are several ranks. Collective over all ranks
 * of the job, whether w is its world or a replica's; over those of the replica if that is apart. Nothing ends: for a
 * failure that an answer can tell. One that ends the job: fatal_agree. */
int agree(const struct world *w, struct err *e);

/* The same for who tells it to a caller that agrees in turn: whether any rank has failed, with *e as it is on each. */
bool agree_failed(const struct world *w, const struct err *e);

/* The error of a rank, with its name before the text: "rank 2/4 on host: ..."; of a single rank as it is. */
struct err agree_named(int rank, int n_ranks, const char *host, const struct err *e);

#endif
