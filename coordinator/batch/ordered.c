/* coordinator/batch/ordered.c - see ordered.h. */
#include "coordinator/batch/ordered.h"
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_BYTES ((size_t)4 << 10) /* of a line: most end there */
#define BLOCK_BYTES ((size_t)64 << 10)

struct spot {
    uint64_t place;
    int64_t offset;
};

static int compare(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Place 0, of lines that are no longer in the input, goes to the end. */
static struct spot *sorted(const struct ids *ids, size_t *n, struct err *e)
{
    struct spot *spot = err_calloc(e, ids->n, sizeof *spot, "order of the results");
    *n = 0;
    for (size_t i = 0; spot != NULL && i < ids->capacity; i++) {
        const struct id_entry *entry = &ids->entry[i];
        if (entry->key[1] != 0 && entry->offset >= 0)
            spot[(*n)++] = (struct spot){entry->place != 0 ? entry->place : UINT64_MAX, entry->offset};
    }
    if (spot != NULL)
        qsort(spot, *n, sizeof *spot, compare);
    return spot;
}

/* One line, whole, to the stream. */
static int copy_line(int fd, int64_t offset, FILE *out)
{
    char block[BLOCK_BYTES];
    for (size_t wanted = FIRST_BYTES;; wanted = sizeof block) {
        ssize_t got = pread(fd, block, wanted, offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? ENODATA : errno;
            return -1;
        }
        const char *newline = memchr(block, '\n', (size_t)got);
        size_t bytes = newline != NULL ? (size_t)(newline - block) + 1 : (size_t)got;
        if (fwrite(block, 1, bytes, out) != bytes)
            return -1;
        if (newline != NULL)
            return 0;
        offset += got;
    }
}

/* `to` stays open. */
static int write_sorted(int from, int to, const struct spot *spot, size_t n)
{
    int own = dup(to);
    FILE *out = own >= 0 ? fdopen(own, "w") : NULL;
    if (out == NULL) {
        if (own >= 0)
            (void)close(own);
        return -1;
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = copy_line(from, spot[i].offset, out);
    if (rc == 0 && (fflush(out) != 0 || fsync(to) != 0))
        rc = -1;
    int why = errno;
    if (fclose(out) != 0 && rc == 0)
        return -1;
    errno = why;
    return rc;
}

/* A new file with the mode of the journal. -1: none. */
static int make(const char *path, int like)
{
    struct stat st;
    (void)unlink(path);
    if (fstat(like, &st) != 0)
        return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && fchmod(fd, st.st_mode & 07777) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* The output's own path may be a link to where the file is. */
int ordered_rewrite(struct journal *j, const struct ids *ids, struct err *e)
{
    char target[PATH_MAX], temporary[PATH_MAX + 16];
    size_t n;
    if (realpath(j->path, target) == NULL)
        return ERR(e, ERR_IO, "%.200s: cannot be found: %s", j->path, strerror(errno));
    (void)snprintf(temporary, sizeof temporary, "%s.ordered.tmp", target);
    struct spot *spot = sorted(ids, &n, e);
    if (spot == NULL)
        return -1;
    int fd = make(temporary, j->fd), rc = fd >= 0 ? write_sorted(j->fd, fd, spot, n) : -1;
    if (rc != 0)
        ERR(e, ERR_IO, "%.200s: cannot be put in order: %s; the results are all there, as they came", j->path,
            strerror(errno));
    else
        rc = journal_replace(j, temporary, target, fd, e);
    if (rc != 0) {
        (void)unlink(temporary);
        if (fd >= 0)
            (void)close(fd);
    }
    free(spot);
    return rc == 0 ? files_sync_folder(target, e) : -1;
}
