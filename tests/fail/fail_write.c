/* tests/fail/fail_write.c - preloaded into the ranks: after $FAIL_WRITE_AFTER bytes written to files in a folder whose
 * name begins with ".half", into which archives are unpacked, the disk is full: write(2) fails with ENOSPC. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static size_t n_written;

static int is_half(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return strstr(path, "/.half") != NULL;
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    ssize_t (*next)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const char *after = getenv("FAIL_WRITE_AFTER");
    if (after == NULL || !is_half(fd))
        return next(fd, from, bytes);
    if (n_written + bytes > strtoull(after, NULL, 10)) {
        errno = ENOSPC;
        return -1;
    }
    n_written += bytes;
    return next(fd, from, bytes);
}
