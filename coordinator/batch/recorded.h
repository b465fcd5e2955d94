/* coordinator/batch/recorded.h - the input files as the manifest records them. A line without an id is called by its
 * place, so what earlier runs have read has to be what it was: a file may have changed behind that, or have grown, and
 * that is all. */
#ifndef BATCH_RECORDED_H
#define BATCH_RECORDED_H

#include "base/json.h"
#include "coordinator/batch/input.h"

/* [{"path", "bytes", "read"}] of every input; the caller decrefs. read: what was read of it
 * (coordinator/batch/prefix.h), by this run or an earlier one that recorded_check has looked at, whichever is more;
 * null: nothing; false: it was read, and cannot be once more. NULL: out of memory. */
json_t *recorded_inputs(const struct inputs *in);

/* Is every input what it was, as far as earlier runs have read it? If not, *e says which one is not, and where. `was`
 * is borrowed by the inputs. */
int recorded_check(const json_t *was, struct inputs *in, const char *output, struct err *e);

#endif
