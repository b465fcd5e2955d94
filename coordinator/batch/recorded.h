/* coordinator/batch/recorded.h - the input files as the manifest records them. A line without an id is identified by
 * its position, so the part that earlier runs have read must be unchanged: a file may only have changed after that
 * part, or have grown. */
#ifndef BATCH_RECORDED_H
#define BATCH_RECORDED_H

#include "base/json.h"
#include "coordinator/batch/input.h"

/* [{"path", "bytes", "read"}] of every input; the caller decrefs. read: the longest part read by this run or by an
 * earlier one that recorded_check has verified (coordinator/batch/prefix.h); null: nothing; false: it was read but
 * cannot be read again. NULL: out of memory. */
json_t *recorded_inputs(const struct inputs *in);

/* Is every input unchanged as far as earlier runs have read it? If not, *e says which one has changed, and where. The
 * inputs borrow `was`. */
int recorded_check(const json_t *was, struct inputs *in, const char *output, struct err *e);

#endif
