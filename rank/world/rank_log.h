/* rank/world/rank_log.h - a log file for every rank (base/log.h), in a folder that rank 0 names. */
#ifndef WORLD_RANK_LOG_H
#define WORLD_RANK_LOG_H

#include "rank/world/world.h"

/* Lines go to DIR/rank-R.log from now on; the folder is made if need be, on every host. dir: rank 0's counts; NULL: no
 * files. Collective; -1 and *e where a rank cannot write. */
int rank_log_open(const struct world *w, const char *dir, struct err *e);

#endif
