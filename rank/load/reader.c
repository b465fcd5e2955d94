/* rank/load/reader.c - see reader.h. Every thread takes a piece of the next block, reads it without the lock, and
 * reports it as done. */
#include "rank/load/reader.h"
#include "base/clock.h"
#include "rank/load/block_file.h"

#include <stdatomic.h>
#include <string.h>

/* A part of a block that one thread reads. */
struct read_piece {
    const struct read_block *block;
    int k, slot;
    unsigned char *to;
    size_t at, bytes; /* at: in the block */
};

static const struct read_block *block_of(const struct reader *r, int k)
{
    return &r->plan->block[r->first + k * r->stride];
}

/* Ends the handing out of pieces, and all waits. The lock is held here and in the following functions. */
static void stop_reading(struct reader *r)
{
    r->stop = true;
    (void)pthread_cond_broadcast(&r->room);
    (void)pthread_cond_broadcast(&r->done);
}

/* Polls *value, without the lock, until it differs from `seen` or the spin time is over. Returns whether it changed. */
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

/* Waits for a piece to read. Returns false if there will be no more. */
static bool take_piece(struct reader *r, struct read_piece *p)
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
    *p = (struct read_piece){b, r->next, r->next % r->n_slots, s->bytes + r->next_at, r->next_at, bytes};
    r->next_at += bytes;
    if (r->next_at == b->bytes) {
        r->next++;
        r->next_at = 0;
    }
    return true;
}

static void hand_in(struct reader *r, const struct read_piece *p, const struct err *e)
{
    struct reader_slot *s = &r->slot[p->slot];
    if (e->code != ERR_NONE) {
        ERR(&r->err, e->code, "%s", e->text);
        stop_reading(r);
        return;
    }
    r->bytes_read += p->bytes;
    s->left -= p->bytes;
    if (s->left == 0) {
        atomic_store_explicit(&r->ready[p->slot], p->k, memory_order_release);
        (void)pthread_cond_broadcast(&r->done);
    }
}

static void *read_blocks(void *context)
{
    struct reader *r = context;
    struct block_file file;
    struct read_piece p;
    block_file_init(&file, r->c);
    (void)pthread_mutex_lock(&r->lock);
    while (take_piece(r, &p)) {
        struct err e = {0};
        (void)pthread_mutex_unlock(&r->lock);
        (void)block_file_read(&file, p.block, p.at, p.bytes, p.to, &e);
        (void)pthread_mutex_lock(&r->lock);
        hand_in(r, &p, &e);
    }
    (void)pthread_mutex_unlock(&r->lock);
    block_file_close(&file);
    return NULL;
}

/* Fewer threads than wanted are accepted, but not none. */
static int start_threads(struct reader *r, int n, struct err *e)
{
    int started = 0;
    (void)pthread_mutex_lock(&r->lock); /* n_threads is read by the first piece */
    while (started < n && pthread_create(&r->thread[started], NULL, read_blocks, r) == 0)
        started++;
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
    stop_reading(r);
    (void)pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++)
        (void)pthread_join(r->thread[i], NULL);
    (void)pthread_cond_destroy(&r->done);
    (void)pthread_cond_destroy(&r->room);
    (void)pthread_mutex_destroy(&r->lock);
}
