/* rank/load/load_alone.h - each rank reads only its own slices, independently of others except for their failures. */
#ifndef LOAD_LOAD_ALONE_H
#define LOAD_LOAD_ALONE_H

#include "rank/load/loader.h"
#include "rank/load/reader.h"

#include <pthread.h>

#define ALONE_MAX_SLOTS READER_MAX_SLOTS
_Static_assert(ALONE_MAX_SLOTS <= UPLOADS_MOST, "a piece of each");

struct alone {
    struct loader *l;               /* borrowed */
    int first;                      /* first block to read; the order wraps around */
    size_t batch_bytes;             /* of slots that the device is given at once */
    struct window own, *window;     /* window of the slots; own: used if none was lent */
    size_t slot_bytes, unpacked_at; /* of a slot: its size, and the offset for unpacked data, after the data read */
    struct unpacked_block {
        struct cells_piece piece;
        struct err refused;
    } * unpacked;           /* [n_slots] the unpacked pieces of the block there, if it belongs to a quantised matrix */
    int n_slots, n_threads; /* slots s, s + n_threads, ... are those of thread s */
    _Atomic int next;       /* blocks that have been handed out to threads */
    _Atomic int full[ALONE_MAX_SLOTS]; /* [n_slots] 1 + the block in the slot; 0: its thread may read into it */
    bool taken[ALONE_MAX_SLOTS];       /* [n_slots] used by the main thread: it is being copied to the device */
    int at;                            /* the slot to check next */
    struct slot_batch {
        int n, slot[ALONE_MAX_SLOTS];
    } batch[2];             /* copies in progress, up to one mark each */
    struct uploads uploads; /* of the batch that is being made; a slot has one at most */
    _Atomic bool stop;      /* a thread has failed, or another rank */
    pthread_mutex_t lock;   /* of err */
    struct err err;
    struct alone_thread {
        struct alone *a;
        int i;
        pthread_t thread;
    } thread[READER_MAX_THREADS];
};

/* Allocate memory for the loader's plan, which is this rank's own. lent: a window of the caller that stays open, or
 * NULL. The struct must not move. Local, like the other two. */
int alone_open(struct alone *a, struct loader *l, const struct world *w, struct window *lent, struct err *e);

/* Load. Fails with what went wrong, file and byte. */
void alone_run(struct alone *a, struct err *e);

/* Accepts what could not be opened. */
void alone_close(struct alone *a);

#endif
