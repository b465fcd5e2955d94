/* coordinator/batch/journal.c - see journal.h. */
#include "coordinator/batch/journal.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)1 << 20)

static const char *name_of(const struct journal *j)
{
    return j->is_file || strcmp(j->path, "-") != 0 ? j->path : "standard output";
}

/* File systems without locks are accepted; the user must then avoid concurrent batches. */
static int lock(struct journal *j, double until, struct err *e)
{
    const struct timespec pause = {0, 50000000};
    while (flock(j->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            log_warn("--output %.200s: cannot be locked (%s): do not start a second batch on it", j->path,
                     strerror(errno));
            return 0;
        }
        if (seconds_now() > until)
            return ERR(e, ERR_IO, "--output %.200s: another batch is writing to it", j->path);
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

/* A file is opened for reading, too, in order to resume. A pipe is not: it would become its own reader, and all results
 * would be lost. */
static int open_output(const struct journal *j, struct err *e)
{
    struct stat st;
    if (strcmp(j->path, "-") == 0)
        return dup(STDOUT_FILENO);
    if (stat(j->path, &st) != 0 || S_ISREG(st.st_mode))
        return open(j->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    int fd = open(j->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENXIO)
        (void)ERR(e, ERR_IO, "--output %.200s: the pipe has no reader", j->path);
    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

/* Opens and locks. 1: the file has been replaced meanwhile by the batch that had the lock (rewrite.h). */
static int open_locked(struct journal *j, double until, struct err *e)
{
    struct stat st, there;
    bool standard = strcmp(j->path, "-") == 0;
    j->fd = open_output(j, e);
    if (e->code != ERR_NONE)
        return -1;
    if (j->fd < 0 || fstat(j->fd, &st) != 0)
        return ERR(e, ERR_IO, "--output %.200s: cannot open: %s", j->path, strerror(errno));
    j->is_file = !standard && S_ISREG(st.st_mode);
    if (!j->is_file)
        return 0;
    if (lock(j, until, e) != 0)
        return -1;
    if (fstat(j->fd, &st) != 0) /* again, since the previous holder of the lock may have written */
        return ERR(e, ERR_IO, "--output %.200s: cannot be examined: %s", j->path, strerror(errno));
    j->bytes = st.st_size;
    return stat(j->path, &there) != 0 || there.st_dev != st.st_dev || there.st_ino != st.st_ino;
}

int journal_open(struct journal *j, const char *path, double patience, struct err *e)
{
    double until = seconds_now() + patience;
    int rc;
    *j = (struct journal){.path = path, .fd = -1};
    if ((j->prefix = prefix_open(e)) == NULL)
        return -1;
    while ((rc = open_locked(j, until, e)) == 1) {
        (void)close(j->fd);
        j->fd = -1;
        if (seconds_now() > until)
            return ERR(e, ERR_IO, "--output %.200s: another batch is replacing it", path);
    }
    return rc;
}

/* The hash of the whole file. NULL: errno. */
static struct prefix *hash_of(int fd)
{
    struct err e = {0};
    struct prefix *p = prefix_open(&e);
    char *block = malloc(BLOCK_BYTES);
    ssize_t got = p != NULL && block != NULL ? 1 : -1;
    int why = ENOMEM;
    while (got > 0 || (got < 0 && why == EINTR)) {
        got = pread(fd, block, BLOCK_BYTES, (off_t)prefix_bytes(p));
        why = errno;
        if (got > 0)
            prefix_add(p, block, (size_t)got);
    }
    free(block);
    if (got == 0)
        return p;
    prefix_close(p);
    errno = why;
    return NULL;
}

int journal_replace(struct journal *j, const char *temporary, const char *target, int fd)
{
    struct prefix *prefix = hash_of(fd);
    if (prefix == NULL)
        return -1;
    (void)flock(fd, LOCK_EX | LOCK_NB); /* only ours so far; a missing lock has been warned of already */
    if (rename(temporary, target) != 0) {
        int why = errno;
        prefix_close(prefix);
        errno = why;
        return -1;
    }
    (void)close(j->fd);
    prefix_close(j->prefix);
    j->fd = fd;
    j->prefix = prefix;
    j->bytes = prefix_bytes(prefix);
    j->unsynced = 0;
    journal_forget(j);
    return 0;
}

void journal_forget(struct journal *j)
{
    json_decref(j->synced);
    j->synced = NULL;
}

int journal_refuse_other(const struct journal *j, const char *begin, struct err *e)
{
    char there[32] = "";
    size_t n = strlen(begin) < sizeof there ? strlen(begin) : sizeof there;
    ssize_t got = pread(j->fd, there, n, 0);
    if (got < 0)
        return ERR(e, ERR_IO, "--output %.200s: cannot read the existing results: %s", j->path, strerror(errno));
    if (memcmp(there, begin, (size_t)got) == 0 || memchr(there, '\0', (size_t)got) != NULL)
        return 0;
    return ERR(e, ERR_INPUT, "--output %.200s: it is not a result file: line 1 is not a result of a batch", j->path);
}

int journal_check(struct journal *j, const json_t *was, struct err *e)
{
    struct prefix_change c;
    int64_t bytes = json_integer_value(json_object_get(was, "bytes"));
    j->intact = 0;
    if (!json_is_object(was) || j->bytes < bytes)
        return 0;
    if (prefix_check(was, j->fd, j->path, &c, e) != 0)
        return -1;
    if (c.to != 0)
        return ERR(e, ERR_INPUT,
                   "--output %.120s: bytes %lld to %lld, lines %lld to %lld, have changed since they were written: "
                   "restore them, or remove them and use --force, which runs the missing lines again",
                   j->path, (long long)c.from, (long long)c.to, (long long)c.first_line, (long long)c.last_line);
    j->intact = bytes;
    return 0;
}

struct recovery {
    struct journal *j;
    const struct journal_reader *reader;
    int64_t trusted, n_lines;
    char *buffer; /* [capacity] */
    size_t capacity, held;
    int64_t offset; /* offset of the buffer's first byte, which begins a line */
};

/* Data that is not covered by a hash may have holes or damage and still look like a line. */
static bool is_whole(const struct recovery *r, const char *line, size_t bytes, int64_t offset)
{
    if (offset < r->j->intact)
        return true;
    json_t *value = json_loadb(line, bytes, JSON_ALLOW_NUL, NULL);
    json_decref(value);
    return value != NULL;
}

/* Has the file system lost a part of it (which reads as zeros)? */
static bool has_hole(const char *line, size_t bytes)
{
    return memchr(line, '\0', bytes) != NULL;
}

static int refuse_line(const struct recovery *r, struct err *e)
{
    return ERR(e, ERR_INPUT, "--output %.200s: line %lld is not a result of a batch", r->j->path,
               (long long)r->n_lines + 1);
}

/* Processes the complete lines in the buffer. 0: read on; 1: found a line left by a crash, from which on everything may
 * be cut off. */
static int take_lines(struct recovery *r, struct err *e)
{
    size_t begin = 0;
    int rc = 0;
    for (const char *newline; rc == 0 && (newline = memchr(r->buffer + begin, '\n', r->held - begin)) != NULL;) {
        const char *line = r->buffer + begin;
        size_t bytes = (size_t)(newline - line);
        int64_t offset = r->offset + (int64_t)begin;
        bool ours = is_whole(r, line, bytes, offset) && r->reader->on_line(r->reader->context, line, bytes, offset, e);
        if (e->code != ERR_NONE)
            return -1;
        if (!ours && (offset < r->trusted || !has_hole(line, bytes)))
            return refuse_line(r, e);
        if (ours)
            prefix_add(r->j->prefix, line, bytes + 1);
        r->n_lines++;
        begin += ours ? bytes + 1 : 0;
        rc = !ours;
    }
    memmove(r->buffer, r->buffer + begin, r->held - begin);
    r->held -= begin;
    r->offset += (int64_t)begin;
    return rc;
}

/* Whether the text after the last newline is an unfinished result. */
static int check_tail(const struct recovery *r, struct err *e)
{
    size_t n = strlen(r->reader->begin);
    n = n < r->held ? n : r->held;
    if (memcmp(r->buffer, r->reader->begin, n) == 0 || (r->trusted != JOURNAL_FOREIGN && has_hole(r->buffer, r->held)))
        return 0;
    return refuse_line(r, e);
}

static int read_more(struct recovery *r, ssize_t *got, struct err *e)
{
    if (r->capacity - r->held < BLOCK_BYTES) {
        size_t capacity = 2 * r->capacity + BLOCK_BYTES;
        char *grown = realloc(r->buffer, capacity);
        if (grown == NULL)
            return ERR(e, ERR_MEMORY, "out of host memory: a line of %.200s", r->j->path);
        r->buffer = grown;
        r->capacity = capacity;
    }
    do
        *got = pread(r->j->fd, r->buffer + r->held, r->capacity - r->held, r->offset + (int64_t)r->held);
    while (*got < 0 && errno == EINTR);
    if (*got < 0)
        return ERR(e, ERR_IO, "--output %.200s: cannot read the existing results: %s", r->j->path, strerror(errno));
    r->held += (size_t)*got;
    return 0;
}

int journal_recover(struct journal *j, int64_t trusted, const struct journal_reader *reader, int64_t *cut,
                    struct err *e)
{
    struct recovery r = {.j = j, .reader = reader, .trusted = trusted};
    *cut = 0;
    int rc = 0;
    for (ssize_t got = 1; rc == 0 && got > 0;)
        if ((rc = read_more(&r, &got, e)) == 0)
            rc = take_lines(&r, e);
    if (rc == 0)
        rc = check_tail(&r, e);
    free(r.buffer);
    if (rc < 0)
        return -1;
    *cut = j->bytes - r.offset;
    if (trusted == JOURNAL_FOREIGN && r.n_lines == 0 && *cut > 0)
        return ERR(e, ERR_INPUT, "--output %.200s: it does not contain results of a batch", j->path);
    if (*cut > 0 && ftruncate(j->fd, r.offset) != 0)
        return ERR(e, ERR_IO, "--output %.200s: cannot remove %lld bytes of a partial line: %s", j->path,
                   (long long)*cut, strerror(errno));
    j->bytes = r.offset;
    j->unsynced = trusted == JOURNAL_FOREIGN ? j->bytes : trusted < j->bytes ? j->bytes - trusted : 0;
    return 0;
}

/* Removes a partial line, so that the file ends with the line before it. */
static int failed(struct journal *j, int why, struct err *e)
{
    if (j->is_file && ftruncate(j->fd, j->bytes) != 0)
        return ERR(e, ERR_IO, "%.200s: cannot write: %s; and the partial line cannot be removed: %s", name_of(j),
                   strerror(why), strerror(errno));
    return ERR(e, ERR_IO, "%.200s: cannot write: %s", name_of(j), strerror(why));
}

static int write_all(struct journal *j, const char *line, size_t bytes, struct err *e)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(j->fd, line + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return failed(j, errno, e);
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Standard output's file may be shared with others, so it is not made O_NONBLOCK: a pipe that can be written takes
 * PIPE_BUF bytes without blocking. */
int journal_flush(struct journal *j, struct err *e)
{
    struct pollfd ready = {.fd = j->fd, .events = POLLOUT};
    size_t done = 0;
    int why = 0;
    while (done < j->n_pending && why == 0 && poll(&ready, 1, 0) > 0) {
        size_t bytes = j->n_pending - done < PIPE_BUF ? j->n_pending - done : PIPE_BUF;
        ssize_t n = write(j->fd, j->pending + done, bytes);
        why = n < 0 && errno != EINTR ? errno : 0;
        done += n > 0 ? (size_t)n : 0;
    }
    j->n_pending -= done;
    if (done > 0)
        memmove(j->pending, j->pending + done, j->n_pending);
    return why == 0 || why == EAGAIN ? 0 : failed(j, why, e);
}

static int queue(struct journal *j, const char *line, size_t bytes, struct err *e)
{
    if (j->capacity - j->n_pending < bytes) {
        size_t capacity = 2 * j->capacity + bytes;
        char *grown = realloc(j->pending, capacity);
        if (grown == NULL)
            return ERR(e, ERR_MEMORY, "out of host memory: results that wait for %.200s", name_of(j));
        j->pending = grown;
        j->capacity = capacity;
    }
    memcpy(j->pending + j->n_pending, line, bytes);
    j->n_pending += bytes;
    if (journal_flush(j, e) == 0)
        return 0;
    j->n_pending -= bytes < j->n_pending ? bytes : j->n_pending; /* what is left of this line */
    return -1;
}

int64_t journal_pending_lines(const struct journal *j)
{
    int64_t n = 0;
    for (size_t i = 0; i < j->n_pending; i++)
        n += j->pending[i] == '\n';
    return n;
}

int journal_append(struct journal *j, const char *line, size_t bytes, double now, struct err *e)
{
    if ((j->is_file ? write_all(j, line, bytes, e) : queue(j, line, bytes, e)) != 0)
        return -1;
    if (j->is_file)
        prefix_add(j->prefix, line, bytes);
    if (j->unsynced == 0)
        j->unsynced_at = now;
    j->bytes += (int64_t)bytes;
    j->unsynced += (int64_t)bytes;
    return 0;
}

int journal_sync(struct journal *j, struct err *e)
{
    if (j->is_file && j->sync_failed) /* Linux would report success now, although it has dropped data */
        return ERR(e, ERR_IO, "%.200s: an earlier sync has failed", name_of(j));
    if (j->is_file && j->unsynced > 0 && fdatasync(j->fd) != 0) {
        j->sync_failed = true;
        return ERR(e, ERR_IO, "%.200s: cannot be synced: %s", name_of(j), strerror(errno));
    }
    if (j->is_file && (j->unsynced > 0 || j->synced == NULL)) {
        journal_forget(j);
        j->synced = prefix_json(j->prefix); /* NULL without memory: the next run parses every line */
    }
    j->unsynced = 0;
    return 0;
}

void journal_close(struct journal *j)
{
    if (j->fd >= 0)
        (void)close(j->fd);
    j->fd = -1;
    prefix_close(j->prefix);
    j->prefix = NULL;
    journal_forget(j);
    free(j->pending);
    j->pending = NULL;
    j->n_pending = j->capacity = 0;
}
