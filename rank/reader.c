/* rank/reader.c - see reader.h. Every thread takes a piece of the next block, reads it without the lock, and hands it in. */
#include "rank/reader.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A part of a block that one thread reads: with one request, or one for each of the block's rows. */
struct piece {
    const struct read_block *block;
    int k, slot;
    unsigned char *to;
    size_t at, bytes, done; /* at: in the block */
    bool no_file;           /* it cannot be opened */
    int error;              /* errno; 0 with done < bytes: the file is shorter */
};

static const struct read_block *block_of(const struct reader *r, int k)
{
    return &r->plan->block[r->first + k * r->stride];
}

/* No more pieces, nothing to wait for. The lock is held here, and in all that follows but read_piece. */
static void end(struct reader *r)
{
    r->stop = true;
    (void)pthread_cond_broadcast(&r->room);
    (void)pthread_cond_broadcast(&r->done);
}

/* To the other thread of the core: this one only waits. */
static inline void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* Look at *value, without the lock, until it is no longer `seen`, or the time to spin is over. Returns whether it changed. */
static bool spin_while(struct reader *r, const _Atomic int *value, int seen)
{
    double until = r->spin > 0 ? seconds_now() + r->spin : 0;
    do {
        for (int i = 0; i < 100; i++) {
            if (atomic_load_explicit(value, memory_order_acquire) != seen || atomic_load(&r->stop))
                return true;
            relax();
        }
    } while (until > 0 && seconds_now() < until);
    return false;
}

/* The lock is held before and after. */
static void wait_for_room(struct reader *r)
{
    int seen = r->released;
    (void)pthread_mutex_unlock(&r->lock);
    bool changed = spin_while(r, &r->released, seen);
    (void)pthread_mutex_lock(&r->lock);
    if (!changed && !r->stop && r->released == seen)
        (void)pthread_cond_wait(&r->room, &r->lock);
}

/* Wait for something to read. Returns false when there will be nothing more. */
static bool take_piece(struct reader *r, struct piece *p)
{
    while (!r->stop && r->next < r->n && r->next >= r->released + r->n_slots)
        wait_for_room(r);
    if (r->stop || r->next >= r->n)
        return false;
    const struct read_block *b = block_of(r, r->next);
    struct reader_slot *s = &r->slot[r->next % r->n_slots];
    if (r->next_at == 0)
        s->left = b->bytes;
    size_t left = b->bytes - r->next_at, bytes = r->n_threads > 1 && left > r->piece_bytes ? r->piece_bytes : left;
    *p = (struct piece){b, r->next, r->next % r->n_slots, s->bytes + r->next_at, r->next_at, bytes, 0, false, 0};
    r->next_at += bytes;
    if (r->next_at == b->bytes) {
        r->next++;
        r->next_at = 0;
    }
    return true;
}

/* Where what a piece still lacks begins in the file; how much of it lies there in one stretch goes to *bytes. */
static uint64_t locate(const struct piece *p, size_t *bytes)
{
    const struct read_block *b = p->block;
    size_t at = p->at + p->done, left = p->bytes - p->done;
    if (b->gap == 0) {
        *bytes = left;
        return b->offset + at;
    }
    size_t row = at / b->width, col = at % b->width;
    *bytes = b->width - col < left ? b->width - col : left;
    return b->offset + (uint64_t)row * (b->width + b->gap) + col;
}

/* Every thread opens the files for itself: each request counts the users of the open file, so threads that share one wait for
 * each other (7 KiB took 2.4 us by 15 threads, 7 by 60). */
static int open_file(struct reader_thread *t, struct piece *p)
{
    const struct checkpoint *c = t->r->c;
    char path[sizeof c->dir + 300];
    if (t->file == p->block->file)
        return 0;
    if (t->fd >= 0)
        (void)close(t->fd);
    (void)snprintf(path, sizeof path, "%s/%s", c->dir, checkpoint_file_name(c, p->block->file));
    t->file = p->block->file;
    t->fd = open(path, O_RDONLY | O_CLOEXEC);
    p->error = errno;
    p->no_file = t->fd < 0;
    return p->no_file ? -1 : 0;
}

static void read_piece(struct reader_thread *t, struct piece *p)
{
    if (open_file(t, p) != 0)
        return;
    while (p->done < p->bytes) {
        size_t bytes = 0;
        uint64_t offset = locate(p, &bytes);
        ssize_t n = pread(t->fd, p->to + p->done, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        p->error = n < 0 ? errno : 0;
        if (n <= 0)
            return;
        p->done += (size_t)n;
    }
}

static void fail(struct reader *r, const struct piece *p)
{
    size_t bytes = 0;
    uint64_t offset = locate(p, &bytes);
    const char *name = checkpoint_file_name(r->c, p->block->file);
    if (p->no_file)
        ERR(&r->err, ERR_IO, "%s/%s: cannot open: %s", r->c->dir, name, strerror(p->error));
    else
        ERR(&r->err, ERR_IO, "%s/%s: read at byte %llu: %s, expected %zu more bytes", r->c->dir, name,
            (unsigned long long)offset, p->error != 0 ? strerror(p->error) : "end of file", bytes);
    end(r);
}

static void hand_in(struct reader *r, const struct piece *p)
{
    struct reader_slot *s = &r->slot[p->slot];
    r->bytes_read += p->done;
    s->left -= p->done;
    if (p->done < p->bytes) {
        fail(r, p);
    } else if (s->left == 0) {
        atomic_store_explicit(&r->ready[p->slot], p->k, memory_order_release);
        (void)pthread_cond_broadcast(&r->done);
    }
}

static void *work(void *context)
{
    struct reader_thread *t = context;
    struct reader *r = t->r;
    struct piece p;
    (void)pthread_mutex_lock(&r->lock);
    while (take_piece(r, &p)) {
        (void)pthread_mutex_unlock(&r->lock);
        read_piece(t, &p);
        (void)pthread_mutex_lock(&r->lock);
        hand_in(r, &p);
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (t->fd >= 0)
        (void)close(t->fd);
    return NULL;
}

/* Fewer threads than wanted will do, none will not. */
static int start_threads(struct reader *r, int n, struct err *e)
{
    int started = 0;
    (void)pthread_mutex_lock(&r->lock); /* n_threads is read by the first piece */
    for (bool more = true; more && started < n; started += more) {
        struct reader_thread *t = &r->thread[started];
        *t = (struct reader_thread){.r = r, .fd = -1, .file = -1};
        more = pthread_create(&t->thread, NULL, work, t) == 0;
    }
    r->n_threads = started;
    (void)pthread_mutex_unlock(&r->lock);
    return started > 0 ? 0 : ERR(e, ERR_MEMORY, "cannot start a thread that reads the checkpoint");
}

int reader_open(struct reader *r, const struct reader_setup *setup, struct err *e)
{
    const struct read_plan *plan = setup->plan;
    memset(r, 0, sizeof *r);
    r->c = setup->c;
    r->plan = plan;
    r->first = setup->first;
    r->stride = setup->stride;
    r->n = plan->n_blocks > r->first ? (plan->n_blocks - r->first + r->stride - 1) / r->stride : 0;
    r->n_slots = setup->n_slots;
    r->ready = setup->ready;
    r->piece_bytes = setup->piece_bytes;
    r->spin = setup->spin;
    for (int i = 0; i < r->n_slots; i++) {
        r->slot[i].bytes = setup->bytes[i];
        atomic_store(&r->ready[i], -1);
    }
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->room, NULL);
    (void)pthread_cond_init(&r->done, NULL);
    return start_threads(r, setup->n_threads < READER_MAX_THREADS ? setup->n_threads : READER_MAX_THREADS, e);
}

int reader_wait(struct reader *r, int k, struct err *e)
{
    _Atomic int *ready = &r->ready[k % r->n_slots];
    int before = *ready;
    if (before != k)
        (void)spin_while(r, ready, before);
    (void)pthread_mutex_lock(&r->lock);
    while (*ready != k && !r->stop)
        (void)pthread_cond_wait(&r->done, &r->lock);
    bool whole = *ready == k;
    if (!whole)
        ERR(e, r->err.code, "%s", r->err.text);
    (void)pthread_mutex_unlock(&r->lock);
    return whole ? 0 : -1;
}

void reader_release(struct reader *r, int k)
{
    (void)pthread_mutex_lock(&r->lock);
    r->released = k > r->released ? k : r->released;
    (void)pthread_cond_broadcast(&r->room);
    (void)pthread_mutex_unlock(&r->lock);
}

void reader_close(struct reader *r)
{
    if (r->c == NULL)
        return;
    (void)pthread_mutex_lock(&r->lock);
    end(r);
    (void)pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++)
        (void)pthread_join(r->thread[i].thread, NULL);
    (void)pthread_cond_destroy(&r->done);
    (void)pthread_cond_destroy(&r->room);
    (void)pthread_mutex_destroy(&r->lock);
}
