/* tests/e2e/count_reads.c - preloaded into the ranks: counts the bytes and requests that read(2) and pread(2) bring
 * from *.safetensors files, and appends "bytes requests largest" to $COUNT_READS_FILE at exit. */
#include "tests/support/weights_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned long long n_bytes, n_requests, largest;

static void count(int fd, ssize_t got)
{
    if (got <= 0 || !reads_weights(fd))
        return;
    n_bytes += (unsigned long long)got;
    n_requests++;
    largest = (unsigned long long)got > largest ? (unsigned long long)got : largest;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    ssize_t got = next(fd, to, bytes, at);
    count(fd, got);
    return got;
}

ssize_t pread64(int fd, void *to, size_t bytes, off_t at)
{
    return pread(fd, to, bytes, at);
}

ssize_t read(int fd, void *to, size_t bytes)
{
    ssize_t (*next)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    ssize_t got = next(fd, to, bytes);
    count(fd, got);
    return got;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("COUNT_READS_FILE");
    char line[100];
    int fd = path != NULL && n_bytes > 0 ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd < 0)
        return;
    int n = snprintf(line, sizeof line, "%llu %llu %llu\n", n_bytes, n_requests, largest);
    (void)!write(fd, line, (size_t)n);
    close(fd);
}
