/* coordinator/archives/cache.h - unpacked archives in one folder, bounded by bytes: each archive is unpacked once; the
 * least recently used ones that are not in use are removed to make room. One job at a time uses the folder, which is
 * kept for the next one. */
#ifndef ARCHIVES_CACHE_H
#define ARCHIVES_CACHE_H

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ARCHIVES_NAME_BYTES 192

/* An unpacked archive. */
struct archive_folder {
    char name[ARCHIVES_NAME_BYTES]; /* of its folder: the model's name, a dot, and 16 digits that identify the
                                       archive */
    int64_t bytes;
    uint64_t used; /* the higher, the more recent */
    int n_users;
    struct archive_folder *next;
};

struct archive_cache {
    char dir[2048], token[40]; /* the text of the folder's lock file, for other processes */
    int lock;                  /* descriptor */
    bool open;
    int64_t limit;
    pthread_mutex_t mutex; /* guards the members below */
    struct archive_folder *first;
    int64_t bytes; /* of all */
    uint64_t n_uses;
    atomic_bool cancel; /* give up the archive that is being unpacked */
};

/* dir is created if it does not exist; incomplete folders of earlier jobs are removed. limit: bytes; negative: 9/10 of
 * the free space there plus the present contents. */
int archive_cache_open(struct archive_cache *c, const char *dir, int64_t limit, struct err *e);
/* Safe on a zeroed struct. */
void archive_cache_close(struct archive_cache *c);

/* The folder of this model's archive, which is unpacked if necessary; it stays until it is released. path: at least
 * PATH_MAX bytes, gets the folder of the model's files. *seconds: time of unpacking; 0: it was unpacked already. One
 * thread at a time. NULL: *e, ERR_MEMORY if there is not enough room. */
struct archive_folder *archive_cache_take(struct archive_cache *c, const char *archive, const char *name, char *path,
                                          double *seconds, struct err *e);
/* Any thread. NULL: nothing. */
void archive_cache_release(struct archive_cache *c, struct archive_folder *f);

/* The bytes of all unpacked archives. Any thread. */
int64_t archive_cache_bytes(struct archive_cache *c);

/* Does this process see the folder that rank 0 has locked? Any process; token is rank 0's. */
int archive_cache_check(const char *dir, const char *token, struct err *e);

#endif
