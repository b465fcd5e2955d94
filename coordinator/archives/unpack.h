/* coordinator/archives/unpack.h - unpacks an archive's files and folders into a new folder and nowhere else. */
#ifndef ARCHIVES_UNPACK_H
#define ARCHIVES_UNPACK_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdint.h>

#define UNPACK_MOST_RATIO 100                  /* allowed ratio of unpacked to packed bytes: weights have less than 3 */
#define UNPACK_FREE_BYTES ((uint64_t)64 << 20) /* bytes to which the ratio does not apply */

/* The owner says whether there is room. */
struct unpack_owner {
    void *context;
    /* Announces that the folder will take this many bytes in all, `more` of them now; -1: refused, with the reason. */
    int (*make_room)(void *context, int64_t bytes, int64_t more, struct err *e);
    const atomic_bool *cancel; /* give up */
};

/* Unpacks into the open folder, which is new, empty and used by the caller only. On failure the files written so far
 * stay there; a full disk is ERR_MEMORY. *bytes: size of the folder. Everything is synced when this returns. */
int unpack_archive(const char *archive, int folder, const struct unpack_owner *owner, int64_t *bytes, struct err *e);

/* The bytes that a file of this size takes on disk; 0: a folder. */
int64_t unpack_on_disk(int64_t bytes);

#endif
