/* rank/measure/file_rate.c - see file_rate.h. */
#include "rank/measure/file_rate.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REQUEST_BYTES ((uint64_t)8 << 20)
#define PAGE          ((uint64_t)4096)

/* The checkpoint's files, concatenated, with requests at equal distances. */
struct file_sample {
    const struct checkpoint *c;
    uint64_t *file_bytes; /* [n_files] */
    uint64_t bytes, request, distance;
    int64_t n; /* requests of all ranks */
};

static int sample_open(struct file_sample *s, const struct checkpoint *c, int n_ranks, double max_bytes, struct err *e)
{
    *s = (struct file_sample){.c = c};
    s->file_bytes = err_calloc(e, (size_t)c->n_files, sizeof *s->file_bytes, "file sizes");
    if (s->file_bytes == NULL)
        return -1;
    for (int i = 0; i < c->n_tensors; i++) {
        uint64_t end = c->tensor[i].offset + c->tensor[i].bytes, *bytes = &s->file_bytes[c->tensor[i].file];
        *bytes = end > *bytes ? end : *bytes;
    }
    for (int i = 0; i < c->n_files; i++)
        s->bytes += s->file_bytes[i];
    uint64_t share = s->bytes / (uint64_t)n_ranks, most = (uint64_t)max_bytes;
    share = (share < most ? share : most) / PAGE * PAGE;
    s->request = share > REQUEST_BYTES ? REQUEST_BYTES : share > PAGE ? share : PAGE;
    s->n = (int64_t)(share / s->request * (uint64_t)n_ranks); /* rounded down: requests do not overlap */
    s->distance = s->n > 0 ? s->bytes / (uint64_t)s->n : 0;
    return 0;
}

/* The position of request k, limited to its file's end. Offsets are multiples of a page. */
static int locate(const struct file_sample *s, int64_t k, uint64_t *offset, size_t *bytes)
{
    uint64_t at = (uint64_t)k * s->distance;
    int file = 0;
    while (file + 1 < s->c->n_files && at >= s->file_bytes[file])
        at -= s->file_bytes[file++];
    *offset = at / PAGE * PAGE;
    uint64_t left = s->file_bytes[file] - *offset;
    *bytes = (size_t)(left < s->request ? left : s->request);
    return file;
}

/* Bytes of the range that lie in the page cache. */
static size_t resident(int fd, uint64_t offset, size_t bytes)
{
    unsigned char page[REQUEST_BYTES / PAGE + 1];
    size_t n = 0, pages = (bytes + PAGE - 1) / PAGE;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    if (map == MAP_FAILED)
        return bytes; /* unknown: not counted as cold */
    if (mincore(map, bytes, page) == 0)
        for (size_t i = 0; i < pages; i++)
            n += page[i] & 1;
    else
        n = pages;
    (void)munmap(map, bytes);
    return n * PAGE < bytes ? n * PAGE : bytes;
}

/* Reads request k into `to`. Returns 0, errno, or -1 if the file is shorter than its header says. */
static int read_one(const struct file_sample *s, int64_t k, unsigned char *to, struct file_rate *f)
{
    char path[sizeof s->c->dir + 300];
    uint64_t offset = 0;
    size_t bytes = 0, done = 0;
    int file = locate(s, k, &offset, &bytes);
    (void)snprintf(path, sizeof path, "%s/%s", s->c->dir, checkpoint_file_name(s->c, file));
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0)
        return errno;
    (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    f->cold_bytes += (double)(bytes - resident(fd, offset, bytes));
    while (done < bytes && rc == 0) {
        ssize_t n = pread(fd, to + done, bytes - done, (off_t)(offset + done));
        rc = n > 0 ? 0 : n == 0 ? -1 : errno == EINTR ? 0 : errno;
        done += n > 0 ? (size_t)n : 0;
    }
    f->bytes += (double)done;
    (void)close(fd);
    return rc;
}

static int say_failure(const struct file_sample *s, int64_t k, int rc, struct err *e)
{
    uint64_t offset = 0;
    size_t bytes = 0;
    int file = locate(s, k, &offset, &bytes);
    return ERR(e, ERR_IO, "%s/%s: read of %zu bytes at byte %llu: %s", s->c->dir, checkpoint_file_name(s->c, file),
               bytes, (unsigned long long)offset, rc > 0 ? strerror(rc) : "the file is shorter than its header says");
}

int file_rate_measure(struct file_rate *f, const struct checkpoint *c, int rank, int n_ranks, double max_bytes,
                      int n_threads, double limit, struct err *e)
{
    struct file_sample s;
    *f = (struct file_rate){0};
    if (sample_open(&s, c, n_ranks, max_bytes, e) != 0)
        return -1;
    int64_t n_mine = s.n > rank ? (s.n - rank + n_ranks - 1) / n_ranks : 0, bad = -1;
    int bad_rc = 0;
    double started = seconds_now(), total = 0, cold = 0;
#pragma omp parallel num_threads(n_threads) reduction(+ : total, cold)
    {
        struct file_rate mine = {0};
        unsigned char *to = malloc(REQUEST_BYTES);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n_mine; i++) {
            int64_t k = rank + i * n_ranks;
            int rc = to == NULL ? ENOMEM : seconds_now() < started + limit ? read_one(&s, k, to, &mine) : 0;
            if (rc != 0) {
#pragma omp critical
                bad = k, bad_rc = rc;
            }
        }
        total += mine.bytes;
        cold += mine.cold_bytes;
        free(to);
    }
    *f = (struct file_rate){total, cold, seconds_now() - started};
    if (bad >= 0)
        (void)say_failure(&s, bad, bad_rc, e);
    free(s.file_bytes);
    return e->code == ERR_NONE ? 0 : -1;
}
