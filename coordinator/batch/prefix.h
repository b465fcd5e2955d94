/* coordinator/batch/prefix.h - all bytes of a file up to some place as a hash (XXH3, 128 bits), and marks on the way
 * there: hashes of what lies before them, by which a change can be found later. Made of bytes as they come; 4 GB a
 * second and more of a core. Not against malice: who wants to make a file of the same hash can. */
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
/* The file ends here: nothing is added any more, and most of the memory is given back. Its last line is one, whether a
 * newline ends it or not (it may get one later, and others behind it). Returns p, which may have moved. */
struct prefix *prefix_end(struct prefix *p);
int64_t prefix_bytes(const struct prefix *p);

/* {"bytes", "hash", "stride", "marks": [hash]}: the k-th mark, from 0, is at byte (k + 1) * stride. The caller
 * decrefs. */
json_t *prefix_json(const struct prefix *p);

/* The place of a change in a file: from the last mark before it to the next one, in bytes from 0 and lines from 1. */
struct prefix_change {
    int64_t from, to, first_line, last_line; /* to: 0: there is no change; -1: the file is shorter */
};

/* Does the file begin as `was` (of prefix_json) says? name: of the file, for messages. -1 and *e: it cannot be read, or
 * `was` makes no sense. */
int prefix_check(const json_t *was, int fd, const char *name, struct prefix_change *change, struct err *e);

#endif
