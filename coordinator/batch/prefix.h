/* coordinator/batch/prefix.h - a hash (XXH3, 128 bits) of all bytes of a file up to some position, and marks on the
 * way: hashes up to earlier positions, which later locate a change. Computed as bytes arrive, at 4 GB/s and more per
 * core. It does not resist forgery. */
#ifndef BATCH_PREFIX_H
#define BATCH_PREFIX_H

#include "base/json.h"

#include <stddef.h>
#include <stdint.h>

struct prefix;

/* Empty. NULL and *e: out of memory. */
struct prefix *prefix_open(struct err *e);
void prefix_close(struct prefix *p); /* NULL: nothing */

void prefix_add(struct prefix *p, const char *text, size_t bytes);
/* The file ends here: nothing is added afterwards, and most of the memory is freed. The last line counts with or
 * without a newline (it may get one later, followed by other lines). Returns p, which may have moved. */
struct prefix *prefix_end(struct prefix *p);
int64_t prefix_bytes(const struct prefix *p);

/* {"bytes", "hash", "stride", "marks": [hash]}: the k-th mark, from 0, is at byte (k + 1) * stride. The caller
 * decrefs. */
json_t *prefix_json(const struct prefix *p);

/* The location of a change in a file: from the last mark before it to the next one, in bytes from 0 and lines from
 * 1. */
struct prefix_change {
    int64_t from, to, first_line, last_line; /* to: 0: there is no change; -1: the file is shorter */
};

/* Does the beginning of the file match `was` (of prefix_json)? name: of the file, for messages. -1 and *e: the file
 * cannot be read, or `was` is invalid. */
int prefix_check(const json_t *was, int fd, const char *name, struct prefix_change *change, struct err *e);

#endif
