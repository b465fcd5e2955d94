/* coordinator/batch/journal.c - see journal.h. */
#include "coordinator/batch/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *name_of(const struct journal *j)
{
    return j->is_file || strcmp(j->path, "-") != 0 ? j->path : "standard output";
}

int journal_open(struct journal *j, const char *path, struct err *e)
{
    struct stat st;
    *j = (struct journal){.path = path, .fd = -1};
    j->fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (j->fd < 0 || fstat(j->fd, &st) != 0)
        return ERR(e, ERR_IO, "--output %.200s: cannot open: %s", path, strerror(errno));
    j->is_file = strcmp(path, "-") != 0 && S_ISREG(st.st_mode);
    if (j->is_file && flock(j->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return ERR(e, ERR_IO, "--output %.200s: another batch is writing to it", path);
    j->bytes = j->is_file ? st.st_size : 0;
    return 0;
}

/* After a part of a line: the file ends with the line before it again. */
static int failed(struct journal *j, int why, struct err *e)
{
    if (j->is_file && ftruncate(j->fd, j->bytes) != 0)
        return ERR(e, ERR_IO, "%.200s: cannot write: %s; nor can the line that was begun be cut off: %s", name_of(j),
                   strerror(why), strerror(errno));
    return ERR(e, ERR_IO, "%.200s: cannot write: %s", name_of(j), strerror(why));
}

int journal_append(struct journal *j, const char *line, size_t bytes, double now, struct err *e)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(j->fd, line + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return failed(j, errno, e);
        done += n > 0 ? (size_t)n : 0;
    }
    if (j->unsynced == 0)
        j->unsynced_at = now;
    j->bytes += (int64_t)bytes;
    j->unsynced += (int64_t)bytes;
    return 0;
}

int journal_sync(struct journal *j, struct err *e)
{
    if (j->is_file && j->unsynced > 0 && fdatasync(j->fd) != 0)
        return ERR(e, ERR_IO, "%.200s: cannot be synced: %s", name_of(j), strerror(errno));
    j->unsynced = 0;
    return 0;
}

void journal_close(struct journal *j)
{
    if (j->fd >= 0)
        (void)close(j->fd);
    j->fd = -1;
}
