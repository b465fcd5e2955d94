/* coordinator/archives/cache.h - unpacked archives in one folder, bounded by bytes: each is unpacked once, those least
 * recently used make room, none that is in use does. The folder is one job's at a time, and is kept for the next. */
#ifndef ARCHIVES_CACHE_H
#define ARCHIVES_CACHE_H

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ARCHIVES_NAME_BYTES 192

/* An archive that is unpacked. */
struct archive_folder {
    char name
        [ARCHIVES_NAME_BYTES]; /* of its folder: the model's name, a point, 16 digits that say which archive it was */
    int64_t bytes;
    uint64_t used; /* higher: later */
    int n_users;
    struct archive_folder *next;
};

struct archive_cache {
    char dir[2048], token[40]; /* the text of the folder's lock file, for other processes */
    int lock;                  /* descriptor */
    bool open;
    int64_t limit;
    pthread_mutex_t mutex; /* of what follows */
    struct archive_folder *first;
    int64_t bytes; /* of all */
    uint64_t n_uses;
    atomic_bool cancel; /* the archive that is being unpacked is given up */
};

/* dir is made if it is not there; what an earlier job has left half done is removed. limit: bytes; negative: 9/10 of
 * what is free there and what it holds. */
int archive_cache_open(struct archive_cache *c, const char *dir, int64_t limit, struct err *e);
/* Safe on a zeroed struct. */
void archive_cache_close(struct archive_cache *c);

/* The folder of the archive of this model, which is unpacked if that has not been done; it stays until it is released.
 * path: at least PATH_MAX bytes, where the model's files are. *seconds: that unpacking took, 0: it was there. One
 * thread at a time. NULL: *e, ERR_MEMORY where room is short. */
struct archive_folder *archive_cache_take(struct archive_cache *c, const char *archive, const char *name, char *path,
                                          double *seconds, struct err *e);
/* Any thread. NULL: nothing. */
void archive_cache_release(struct archive_cache *c, struct archive_folder *f);

/* Bytes that it holds now. Any thread. */
int64_t archive_cache_bytes(struct archive_cache *c);

/* Does this process see the folder that rank 0 has locked? Any process; token is rank 0's. */
int archive_cache_check(const char *dir, const char *token, struct err *e);

#endif
