/* rank/load/block_file.c - see block_file.h. */
#include "rank/load/block_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void block_file_init(struct block_file *f, const struct checkpoint *c)
{
    *f = (struct block_file){.c = c, .fd = -1, .file = -1};
}

void block_file_close(struct block_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = f->file = -1;
}

static int open_file(struct block_file *f, int file, struct err *e)
{
    char path[sizeof f->c->dir + 300];
    if (f->file == file)
        return 0;
    block_file_close(f);
    (void)snprintf(path, sizeof path, "%s/%s", f->c->dir, checkpoint_file_name(f->c, file));
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        return ERR(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    f->file = file;
    return 0;
}

/* The file offset of byte `at` of a block; *bytes: number of bytes that are contiguous in the file from there. */
static uint64_t locate(const struct read_block *b, size_t at, size_t *bytes)
{
    if (b->gap == 0) {
        *bytes = b->bytes - at;
        return b->offset + at;
    }
    size_t row = at / b->width, col = at % b->width;
    *bytes = b->width - col;
    return b->offset + (uint64_t)row * (b->width + b->gap) + col;
}

int block_file_read(struct block_file *f, const struct read_block *b, size_t at, size_t bytes, unsigned char *to,
                    struct err *e)
{
    if (open_file(f, b->file, e) != 0)
        return -1;
    for (size_t done = 0; done < bytes;) {
        size_t most = 0;
        uint64_t offset = locate(b, at + done, &most);
        most = most < bytes - done ? most : bytes - done;
        ssize_t n = pread(f->fd, to + done, most, (off_t)offset);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return ERR(e, ERR_IO, "%s/%s: read at byte %llu: %s, expected %zu more bytes", f->c->dir,
                       checkpoint_file_name(f->c, b->file), (unsigned long long)offset,
                       n < 0 ? strerror(errno) : "end of file", most);
    }
    return 0;
}
