/* coordinator/batch/rewrite.c - see rewrite.h. */
#include "coordinator/batch/rewrite.h"
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* `to` stays open. */
static int write_synced(const struct rewrite *w, int from, int to)
{
    int own = dup(to);
    FILE *out = own >= 0 ? fdopen(own, "a") : NULL;
    if (out == NULL) {
        if (own >= 0)
            (void)close(own);
        return -1;
    }
    int rc = w->write(w->context, from, out);
    if (rc == 0 && (fflush(out) != 0 || fsync(to) != 0))
        rc = -1;
    int why = errno;
    if (fclose(out) != 0 && rc == 0)
        return -1;
    errno = why;
    return rc;
}

/* A new file with the journal's mode, opened in the same way. -1: failure. */
static int create_like(const char *path, int like)
{
    struct stat st;
    (void)unlink(path);
    if (fstat(like, &st) != 0)
        return -1;
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && fchmod(fd, st.st_mode & 07777) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* The output's path may be a link to the file. */
int rewrite_run(struct journal *j, const struct rewrite *w, struct err *e)
{
    char target[PATH_MAX], temporary[PATH_MAX + 16];
    if (realpath(j->path, target) == NULL)
        return ERR(e, ERR_IO, "%.200s: cannot be found: %s", j->path, strerror(errno));
    (void)snprintf(temporary, sizeof temporary, "%s.rewrite.tmp", target);
    int fd = create_like(temporary, j->fd), rc = fd >= 0 ? write_synced(w, j->fd, fd) : -1;
    if (rc == 0)
        rc = journal_replace(j, temporary, target, fd);
    if (rc == 0)
        return files_sync_folder(target, e);
    ERR(e, ERR_IO, "%.200s: cannot be %s: %s; it is unchanged", j->path, w->what, strerror(errno));
    (void)unlink(temporary);
    if (fd >= 0)
        (void)close(fd);
    return -1;
}
