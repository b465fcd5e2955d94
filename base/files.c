/* base/files.c - see files.h. */
#include "base/files.h"
#include "base/json.h"

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

int files_sync_folder(const char *path, struct err *e)
{
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder] = '\0'; /* "/" itself stays */
    int fd = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int why = errno;
    if (fd >= 0)
        (void)close(fd);
    return good || why == EINVAL ? 0 : ERR(e, ERR_IO, "%.200s: its folder cannot be synced: %s", path, strerror(why));
}

bool files_present(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* NULL: a regular file, a link to one, a dangling link, or nothing at all. */
static const char *what_else(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode))
        return NULL;
    return S_ISDIR(st.st_mode)    ? "a folder"
           : S_ISFIFO(st.st_mode) ? "a pipe"
           : S_ISSOCK(st.st_mode) ? "a socket"
                                  : "a device";
}

int files_check_replaceable(const char *path, const char *option, struct err *e)
{
    char folder[PATH_MAX];
    const char *what = what_else(path);
    if (what != NULL)
        return ERR(e, ERR_USAGE, "%s %.200s: it is %s, expected a regular file or none: it is replaced as a whole",
                   option, path, what);
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return ERR(e, ERR_IO, "%s %.200s: the path is too long", option, path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder] = '\0';
    if (access(slash != NULL ? folder : ".", W_OK | X_OK) != 0)
        return ERR(e, ERR_IO, "%s %.200s: cannot write into its folder: %s", option, path, strerror(errno));
    return 0;
}

static int replace_file(const char *path, const char *text, size_t bytes, mode_t mode, bool synced, struct err *e)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, (int)getpid()) >= (int)sizeof temporary)
        return ERR(e, ERR_IO, "%.200s: the path is too long", path);
    if (what_else(path) != NULL)
        return ERR(e, ERR_IO, "%.200s: it is %s by now, expected a regular file", path, what_else(path));
    /* Creates a new file, never through an existing link and never with an existing mode. fchmod restores the bits that
     * the umask removed. */
    (void)unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0600);
    bool good = fd >= 0 && fchmod(fd, mode) == 0 && write_all(fd, text, bytes) == 0 && (!synced || fsync(fd) == 0);
    int why = errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && rename(temporary, path) == 0)
        return synced ? files_sync_folder(path, e) : 0;
    why = good ? errno : why;
    if (fd >= 0)
        (void)unlink(temporary);
    return ERR(e, ERR_IO, "%.200s: cannot write: %s", path, strerror(why));
}

int files_replace(const char *path, const char *text, size_t bytes, mode_t mode, struct err *e)
{
    return replace_file(path, text, bytes, mode, false, e);
}

static int replace_json(const char *path, const json_t *object, mode_t mode, bool synced, struct err *e)
{
    char *text = object != NULL ? json_text(object, JSON_INDENT(2)) : NULL;
    if (text == NULL)
        return ERR(e, ERR_MEMORY, "%.200s: out of host memory", path);
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the NUL */
    int written = replace_file(path, text, bytes + 1, mode, synced, e);
    free(text);
    return written;
}

int files_replace_json(const char *path, const json_t *object, mode_t mode, struct err *e)
{
    return replace_json(path, object, mode, false, e);
}

int files_replace_json_synced(const char *path, const json_t *object, mode_t mode, struct err *e)
{
    return replace_json(path, object, mode, true, e);
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
