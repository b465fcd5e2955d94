/* coordinator/server/files.c - see files.h. */
#include "coordinator/server/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(int fd, const char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, text + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int files_replace(const char *path, const char *text, size_t bytes, mode_t mode, struct err *e)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, (int)getpid()) >= (int)sizeof temporary)
        return ERR(e, ERR_IO, "%.200s: the path is too long", path);
    /* A new file of our own: nobody else's link or mode is taken over. fchmod undoes what the umask took away. */
    (void)unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0600);
    bool good = fd >= 0 && fchmod(fd, mode) == 0 && write_all(fd, text, bytes) == 0;
    int why = errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && rename(temporary, path) == 0)
        return 0;
    why = good ? errno : why;
    if (fd >= 0)
        (void)unlink(temporary);
    return ERR(e, ERR_IO, "%.200s: cannot write: %s", path, strerror(why));
}

int files_replace_json(const char *path, const json_t *object, mode_t mode, struct err *e)
{
    char *text = object != NULL ? json_dumps(object, JSON_INDENT(2)) : NULL;
    if (text == NULL)
        return ERR(e, ERR_MEMORY, "%.200s: out of host memory", path);
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the NUL */
    int written = files_replace(path, text, bytes + 1, mode, e);
    free(text);
    return written;
}

void files_mark(struct file_mark *m, const char *path)
{
    struct stat st;
    memset(m, 0, sizeof *m);
    if (lstat(path, &st) == 0)
        *m = (struct file_mark){.known = true, .device = st.st_dev, .inode = st.st_ino, .written = st.st_mtim};
}

void files_remove_marked(struct file_mark *m, const char *path)
{
    struct file_mark now;
    files_mark(&now, path);
    if (m->known && now.known && m->device == now.device && m->inode == now.inode &&
        m->written.tv_sec == now.written.tv_sec && m->written.tv_nsec == now.written.tv_nsec)
        (void)unlink(path);
    memset(m, 0, sizeof *m);
}
