/* tests/fail/fail_read.c - preloaded into the ranks: on rank $FAIL_READ_RANK ("all": on every rank) pread(2) from
 * *.safetensors fails with EIO after $FAIL_READ_AFTER bytes, or finds the end of the file there if $FAIL_READ_KIND is
 * "end". With $FAIL_READ_NAP each pread of the other ranks takes this many seconds. */
#include "tests/support/weights_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static size_t n_read;

static int is_chosen(void)
{
    const char *chosen = getenv("FAIL_READ_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    return chosen != NULL && rank != NULL && (strcmp(chosen, rank) == 0 || strcmp(chosen, "all") == 0);
}

static void take_a_nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        continue;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    const char *nap = getenv("FAIL_READ_NAP");
    bool weights = reads_weights(fd);
    if (weights && !is_chosen() && nap != NULL)
        take_a_nap(atof(nap));
    if (!is_chosen() || !weights)
        return next(fd, to, bytes, at);
    const char *after = getenv("FAIL_READ_AFTER"), *kind = getenv("FAIL_READ_KIND");
    size_t limit = after != NULL ? strtoull(after, NULL, 10) : 0;
    if (n_read >= limit) {
        errno = EIO;
        return kind != NULL && strcmp(kind, "end") == 0 ? 0 : -1;
    }
    ssize_t got = next(fd, to, bytes < limit - n_read ? bytes : limit - n_read, at);
    n_read += got > 0 ? (size_t)got : 0;
    return got;
}

ssize_t pread64(int fd, void *to, size_t bytes, off_t at)
{
    return pread(fd, to, bytes, at);
}
