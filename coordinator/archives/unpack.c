/* coordinator/archives/unpack.c - see unpack.h. Only files and folders are created here, so no path leads through a
 * link. */
#include "coordinator/archives/unpack.h"
#include "coordinator/archives/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_BLOCK  4096
#define CHUNK_BYTES ((size_t)1 << 20)
#define MOST_BYTES  ((uint64_t)1 << 60) /* of a file */

struct unpacking {
    struct tar tar;
    int folder;
    const struct unpack_owner *owner;
    int64_t bytes;
    int n_folders;
    char *chunk;
};

int64_t unpack_on_disk(int64_t bytes)
{
    return (bytes / DISK_BLOCK + 1) * DISK_BLOCK;
}

static int fail_writing(const struct unpacking *u, const char *path, struct err *e)
{
    int why = errno;
    bool full = why == ENOSPC || why == EDQUOT;
    return ERR(e, full ? ERR_MEMORY : ERR_IO, "%.160s: cannot unpack \"%.100s\" after %lld bytes: %s", u->tar.what,
               path, (long long)u->bytes, strerror(why));
}

/* Claims the room for this number of bytes before they are written. */
static int claim(struct unpacking *u, const char *path, uint64_t bytes, struct err *e)
{
    if (bytes > MOST_BYTES)
        return ERR(e, ERR_INPUT, "%.160s: \"%.100s\" in it is of %llu bytes", u->tar.what, path,
                   (unsigned long long)bytes);
    int64_t more = unpack_on_disk((int64_t)bytes);
    uint64_t all = (uint64_t)u->bytes + (uint64_t)more;
    if (all > UNPACK_FREE_BYTES && all / UNPACK_MOST_RATIO > u->tar.archive_bytes)
        return ERR(e, ERR_INPUT,
                   "%.160s: with \"%.100s\" it takes %llu bytes unpacked, more than %d times its own %llu: refused",
                   u->tar.what, path, (unsigned long long)all, UNPACK_MOST_RATIO,
                   (unsigned long long)u->tar.archive_bytes);
    if (u->owner->make_room(u->owner->context, (int64_t)all, more, e) != 0)
        return -1;
    u->bytes = (int64_t)all;
    return 0;
}

static int make_folder(struct unpacking *u, const char *path, struct err *e)
{
    struct stat info;
    if (fstatat(u->folder, path, &info, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(info.st_mode)
                   ? 0
                   : ERR(e, ERR_INPUT, "%.160s: \"%.100s\" in it is both a file and a folder", u->tar.what, path);
    if (++u->n_folders > TAR_MAX_PARTS)
        return ERR(e, ERR_INPUT, "%.160s: more than %d folders", u->tar.what, TAR_MAX_PARTS);
    if (claim(u, path, 0, e) != 0)
        return -1;
    return mkdirat(u->folder, path, 0755) == 0 ? 0 : fail_writing(u, path, e);
}

/* Creates the parent folders of the path, for which the archive need not have entries. */
static int make_parents(struct unpacking *u, char *path, struct err *e)
{
    for (char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int rc = make_folder(u, path, e);
        *slash = '/';
        if (rc != 0)
            return -1;
    }
    return 0;
}

static int write_all(int fd, const char *from, size_t n)
{
    while (n > 0) {
        ssize_t some = write(fd, from, n);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return -1;
        from += some;
        n -= (size_t)some;
    }
    return 0;
}

static int copy(struct unpacking *u, const char *path, int fd, struct err *e)
{
    for (size_t got = 1; got > 0;) {
        if (atomic_load(u->owner->cancel))
            return ERR(e, ERR_IO, "%.160s: unpacking was given up: the server ends", u->tar.what);
        if (tar_read(&u->tar, u->chunk, CHUNK_BYTES, &got, e) != 0)
            return -1;
        if (write_all(fd, u->chunk, got) != 0)
            return fail_writing(u, path, e);
    }
    return fsync(fd) == 0 ? 0 : fail_writing(u, path, e);
}

static int make_file(struct unpacking *u, struct tar_entry *entry, struct err *e)
{
    if (make_parents(u, entry->path, e) != 0 || claim(u, entry->path, entry->bytes, e) != 0)
        return -1;
    int fd = openat(u->folder, entry->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST)
        return ERR(e, ERR_INPUT, "%.160s: \"%.100s\" is in it twice", u->tar.what, entry->path);
    if (fd < 0)
        return fail_writing(u, entry->path, e);
    int rc = copy(u, entry->path, fd, e);
    if (close(fd) != 0 && rc == 0)
        rc = fail_writing(u, entry->path, e);
    return rc;
}

static int make_entry(struct unpacking *u, struct tar_entry *entry, struct err *e)
{
    if (!entry->is_folder)
        return make_file(u, entry, e);
    if (entry->path[0] == '\0')
        return 0;
    return make_parents(u, entry->path, e) != 0 ? -1 : make_folder(u, entry->path, e);
}

int unpack_archive(const char *archive, int folder, const struct unpack_owner *owner, int64_t *bytes, struct err *e)
{
    struct unpacking u = {.folder = folder, .owner = owner};
    struct tar_entry entry;
    u.chunk = err_calloc(e, CHUNK_BYTES, 1, "unpacking");
    int more = u.chunk != NULL ? tar_open(&u.tar, archive, e) : -1;
    while (more >= 0 && (more = tar_next(&u.tar, &entry, e)) > 0)
        if (make_entry(&u, &entry, e) != 0)
            more = -1;
    tar_close(&u.tar);
    free(u.chunk);
    *bytes = u.bytes;
    if (more == 0 && u.bytes == 0)
        return ERR(e, ERR_INPUT, "%.160s: it is empty", archive);
    return more;
}
