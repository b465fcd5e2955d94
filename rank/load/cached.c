/* rank/load/cached.c - see cached.h. A nonblocking read (RWF_NOWAIT) tells it for disks; files in memory (tmpfs) refuse
 * such reads, as network file systems do, and are recognised by their type. mincore reports files of other users always
 * as resident. */
#include "rank/load/cached.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool in_memory(int fd)
{
    struct statfs s;
    return fstatfs(fd, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

static bool is_cached(int fd, uint64_t offset)
{
    char byte;
    struct iovec to = {&byte, 1};
    return preadv2(fd, &to, 1, (off_t)offset, RWF_NOWAIT) == 1;
}

bool cached_blocks(const struct checkpoint *c, const struct read_plan *plan, int first, int stride)
{
    char path[sizeof c->dir + 300];
    bool cached = true, whole = false;
    int file = -1, fd = -1;
    for (int b = first; cached && b < plan->n_blocks; b += stride) {
        const struct read_block *block = &plan->block[b];
        if (block->file != file) {
            if (fd >= 0)
                (void)close(fd);
            file = block->file;
            (void)snprintf(path, sizeof path, "%s/%s", c->dir, checkpoint_file_name(c, file));
            fd = open(path, O_RDONLY | O_CLOEXEC);
            whole = fd >= 0 && in_memory(fd);
        }
        cached = whole || (fd >= 0 && is_cached(fd, block->offset));
    }
    if (fd >= 0)
        (void)close(fd);
    return cached;
}
