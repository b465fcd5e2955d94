/* base/log_writer.c - see log_writer.h. One lock, held for as long as it takes to link a line. Not a mailbox, since a
 * ZeroMQ context waits until all its sockets are closed, and this thread may be stuck. */
#include "base/log_writer.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CLOSE_SECONDS  1.0
#define LOOK_MS        100 /* between two looks at a full pipe */
#define FOLLOW_SECONDS 1.0 /* between two looks at the file's path */

struct log_line {
    struct log_line *next;
    size_t bytes;
    char *text;
};

struct log_writer {
    int fd;
    const char *name;
    bool is_pipe; /* or anything else that is not a file: a write of more than PIPE_BUF bytes may block */
    bool torn;    /* the thread's: only the beginning of the last line was written */
    char *path;   /* of a file that may be moved; NULL: none */
    int (*open_file)(const char *path, struct err *e);
    double looked; /* the thread's, like all about the path */
    bool said_moved;
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t come;
    struct log_line *first, *last;
    size_t bytes;         /* of these, and of the one that is being written */
    double closing_until; /* 0: not closing */
    uint64_t lost;
    bool said;
};

/* The lock is held. */
static void lose(struct log_writer *w, const char *why)
{
    w->lost++;
    if (!w->said)
        log_warn("%s: lines are lost: %s", w->name, why);
    w->said = true;
}

/* false: the time to close is over. */
static bool may_wait(struct log_writer *w)
{
    (void)pthread_mutex_lock(&w->lock);
    double until = w->closing_until;
    (void)pthread_mutex_unlock(&w->lock);
    return until <= 0 || seconds_now() < until;
}

/* Up to PIPE_BUF bytes are one write: lines of several processes never mix. Returns an errno, 0: written; *done: how
 * many bytes are. */
static int write_bytes(struct log_writer *w, const char *text, size_t bytes, size_t *done)
{
    for (*done = 0; *done < bytes;) {
        struct pollfd room = {.fd = w->fd, .events = POLLOUT};
        bool wait = may_wait(w);
        if (poll(&room, 1, wait ? LOOK_MS : 0) < 1) {
            if (!wait)
                return EAGAIN;
            continue;
        }
        size_t piece = w->is_pipe && bytes - *done > PIPE_BUF ? PIPE_BUF : bytes - *done;
        ssize_t n = write(w->fd, text + *done, piece);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        *done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* A line that was torn (a full disk) is ended first: it is lost alone. */
static int write_line(struct log_writer *w, const struct log_line *l)
{
    size_t done = 0;
    int why = w->torn ? write_bytes(w, "\n", 1, &done) : 0;
    if (why != 0)
        return why;
    why = write_bytes(w, l->text, l->bytes, &done);
    w->torn = done > 0 && done < l->bytes;
    return why;
}

/* Is the file at the path still the one that is open? */
static bool is_in_place(const struct log_writer *w)
{
    struct stat open_one, there;
    return fstat(w->fd, &open_one) != 0 ||
           (stat(w->path, &there) == 0 && open_one.st_dev == there.st_dev && open_one.st_ino == there.st_ino);
}

/* After the file was moved its path is opened again. */
static void follow_path(struct log_writer *w)
{
    struct err e = {0};
    double now = seconds_now();
    if (w->path == NULL || now - w->looked < FOLLOW_SECONDS)
        return;
    w->looked = now;
    if (is_in_place(w))
        return;
    int fd = w->open_file(w->path, &e);
    if (fd < 0 && !w->said_moved)
        log_warn("%s; lines go to the file that was moved", e.text);
    w->said_moved = fd < 0;
    if (fd < 0)
        return;
    (void)close(w->fd);
    w->fd = fd;
    w->torn = false;
}

static struct log_line *take_line(struct log_writer *w)
{
    while (w->first == NULL && w->closing_until <= 0)
        (void)pthread_cond_wait(&w->come, &w->lock);
    struct log_line *l = w->first;
    if (l != NULL)
        w->first = l->next;
    if (w->first == NULL)
        w->last = NULL;
    return l;
}

static void *run_writer(void *context)
{
    struct log_writer *w = context;
    (void)pthread_mutex_lock(&w->lock);
    for (struct log_line *l; (l = take_line(w)) != NULL;) {
        (void)pthread_mutex_unlock(&w->lock);
        follow_path(w);
        int why = write_line(w, l);
        (void)pthread_mutex_lock(&w->lock);
        if (why != 0)
            lose(w, why == EAGAIN ? "the pipe has no reader" : strerror(why));
        w->bytes -= l->bytes;
        free(l->text);
        free(l);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

int log_writer_open(struct log_writer **w, int fd, const char *name, struct err *e)
{
    struct stat s;
    *w = err_calloc(e, 1, sizeof **w, name);
    if (*w == NULL) {
        (void)close(fd);
        return -1;
    }
    (*w)->fd = fd;
    (*w)->name = name;
    (*w)->is_pipe = fstat(fd, &s) != 0 || !S_ISREG(s.st_mode);
    (void)pthread_mutex_init(&(*w)->lock, NULL);
    (void)pthread_cond_init(&(*w)->come, NULL);
    if (pthread_create(&(*w)->thread, NULL, run_writer, *w) == 0)
        return 0;
    (void)close(fd);
    free(*w);
    *w = NULL;
    return ERR(e, ERR_MEMORY, "%s: cannot start a thread", name);
}

int log_writer_open_path(struct log_writer **w, const char *path, int (*open_file)(const char *path, struct err *e),
                         const char *name, struct err *e)
{
    char *copy = NULL;
    int fd = open_file(path, e);
    if (fd < 0 || log_writer_open(w, fd, name, e) != 0)
        return -1;
    if (!(*w)->is_pipe && strcmp(path, "-") != 0 && (copy = strdup(path)) == NULL) {
        log_writer_close(w);
        return ERR(e, ERR_MEMORY, "out of host memory: %s", name);
    }
    (*w)->open_file = open_file; /* before the first line, which the thread awaits */
    (*w)->looked = seconds_now();
    (*w)->path = copy;
    return 0;
}

void log_writer_put(struct log_writer *w, char *text, size_t bytes)
{
    struct log_line *l = text != NULL ? malloc(sizeof *l) : NULL;
    (void)pthread_mutex_lock(&w->lock);
    bool room = w->bytes + bytes <= LOG_WRITER_BYTES;
    if (l != NULL && room) {
        *l = (struct log_line){.text = text, .bytes = bytes};
        if (w->last != NULL)
            w->last->next = l;
        else
            w->first = l;
        w->last = l;
        w->bytes += bytes;
        (void)pthread_cond_signal(&w->come);
    } else {
        lose(w, room ? "out of host memory" : "they arrive faster than they are written");
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (l == NULL || !room) {
        free(text);
        free(l);
    }
}

uint64_t log_writer_lost(struct log_writer *w)
{
    (void)pthread_mutex_lock(&w->lock);
    uint64_t lost = w->lost;
    (void)pthread_mutex_unlock(&w->lock);
    return lost;
}

void log_writer_close(struct log_writer **w)
{
    struct timespec until;
    if (*w == NULL)
        return;
    (void)pthread_mutex_lock(&(*w)->lock);
    (*w)->closing_until = seconds_now() + CLOSE_SECONDS;
    (void)pthread_cond_signal(&(*w)->come);
    (void)pthread_mutex_unlock(&(*w)->lock);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    if (pthread_timedjoin_np((*w)->thread, NULL, &until) == 0) {
        (void)close((*w)->fd);
        free((*w)->path);
        (void)pthread_cond_destroy(&(*w)->come);
        (void)pthread_mutex_destroy(&(*w)->lock);
        free(*w);
    }
    *w = NULL;
}
