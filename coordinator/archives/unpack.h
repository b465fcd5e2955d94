/* coordinator/archives/unpack.h - an archive's files and folders, into a new folder and nowhere else. */
#ifndef ARCHIVES_UNPACK_H
#define ARCHIVES_UNPACK_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdint.h>

#define UNPACK_MOST_RATIO 100                  /* bytes of a byte of the archive: weights have less than 3 */
#define UNPACK_FREE_BYTES ((uint64_t)64 << 20) /* that need no such proportion */

/* The owner says whether there is room. */
struct unpack_owner {
    void *context;
    /* The folder is to take so many bytes in all, `more` of them are to come now; -1: it may not, and why. */
    int (*make_room)(void *context, int64_t bytes, int64_t more, struct err *e);
    const atomic_bool *cancel; /* give up */
};

/* Into the folder that is open here, new, empty and the caller's alone. On failure the files written so far stay there:
 * disk full is ERR_MEMORY. *bytes: what the folder takes. On disk when this returns. */
int unpack_archive(const char *archive, int folder, const struct unpack_owner *owner, int64_t *bytes, struct err *e);

/* The bytes that a file of this size takes on disk; 0: a folder. */
int64_t unpack_on_disk(int64_t bytes);

#endif
