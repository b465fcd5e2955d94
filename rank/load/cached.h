/* rank/load/cached.h - whether the parts of a checkpoint to be read are in the page cache. */
#ifndef LOAD_CACHED_H
#define LOAD_CACHED_H

#include "partition/checkpoint.h"
#include "partition/read_plan.h"

#include <stdbool.h>

/* Whether blocks first, first + stride, ... of the plan are in memory, judged by their first bytes. Stops at the first
 * one that is not; also false if the file system cannot tell, or a file cannot be opened. */
bool cached_blocks(const struct checkpoint *c, const struct read_plan *plan, int first, int stride);

#endif
