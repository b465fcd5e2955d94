/* rank/load/cached.h - whether the page cache holds what is to be read of a checkpoint. */
#ifndef LOAD_CACHED_H
#define LOAD_CACHED_H

#include "partition/checkpoint.h"
#include "partition/read_plan.h"

#include <stdbool.h>

/* Do blocks first, first + stride, ... of the plan lie in memory, as far as their first bytes tell? Ends at the first one that
 * does not; false too where the file system cannot say, or a file cannot be opened. */
bool cached_blocks(const struct checkpoint *c, const struct read_plan *plan, int first, int stride);

#endif
