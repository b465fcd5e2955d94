/* rank/world/rank_log.h - a log file for every rank (base/log.h), in a folder that rank 0 names. */
#ifndef WORLD_RANK_LOG_H
#define WORLD_RANK_LOG_H

#include "rank/world/world.h"

/* Log to DIR/rank-R.log from now on; the folder is created on every host if necessary. dir: rank 0's value is used;
 * NULL: no files. Collective; -1 and *e on ranks that cannot write. */
int rank_log_open(const struct world *w, const char *dir, struct err *e);

#endif
