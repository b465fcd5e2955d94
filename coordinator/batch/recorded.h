/* coordinator/batch/recorded.h - the input files as the manifest records them. A line without an id is called by its place, so
 * an earlier run's lines have to be where they were: a file may have grown at its end, and that is all. */
#ifndef BATCH_RECORDED_H
#define BATCH_RECORDED_H

#include "base/json.h"
#include "coordinator/batch/input.h"

/* [{"path", "bytes", "sha256"}] of every input; the caller decrefs. The hash is of so many bytes as the file has now: of all of
 * them up to 1 MiB, else of 64 pieces of 16 KiB, the first, the last and evenly between; null for what is no regular file.
 * NULL and *e on failure. */
json_t *recorded_inputs(const struct inputs *in, struct err *e);

/* Does every input that an earlier run recorded still begin with the same bytes? If not, *e says which one does not, and why. */
int recorded_check(const json_t *was, const struct inputs *in, const char *output, struct err *e);

#endif
