/* rank/load/load_alone.h - a rank reads what it holds, and nothing else, without regard to others, but for their
 * failures. */
#ifndef LOAD_LOAD_ALONE_H
#define LOAD_LOAD_ALONE_H

#include "rank/load/loader.h"
#include "rank/load/reader.h"

#include <pthread.h>

#define ALONE_MAX_SLOTS READER_MAX_SLOTS

struct alone {
    struct loader *l;           /* borrowed */
    int first;                  /* block that is read first; the order goes round */
    struct window own, *window; /* of the slots; own: where nobody has one to lend */
    size_t slot_bytes,
        unpacked_at; /* of a slot: its bytes, and where in it what is unpacked goes, behind what is read */
    struct unpacked_block {
        struct cells_piece piece;
        struct err refused;
    } * unpacked;                      /* [n_slots] what was made of the block there, if it is of a quantised matrix */
    int n_slots, n_threads;            /* slots s, s + n_threads, ... are those of thread s */
    _Atomic int next;                  /* blocks that have been handed out to threads */
    _Atomic int full[ALONE_MAX_SLOTS]; /* [n_slots] 1 + the block that lies there; 0: its thread may read into it */
    bool taken[ALONE_MAX_SLOTS];       /* [n_slots] the main thread's: it is being copied to the device */
    int at;                            /* the place at which it looks next */
    struct slot_batch {
        int n, slot[ALONE_MAX_SLOTS];
    } batch[2];           /* copies in progress, up to one mark each */
    _Atomic bool stop;    /* a thread has failed, or another rank */
    pthread_mutex_t lock; /* of err */
    struct err err;
    struct alone_thread {
        struct alone *a;
        int i;
        pthread_t thread;
    } thread[READER_MAX_THREADS];
};

/* Take memory for the loader's plan, which is this rank's own. lent: a window that is the caller's and stays open, or
 * NULL. The struct must stay where it is. Local, as the other two are. */
int alone_open(struct alone *a, struct loader *l, const struct world *w, struct window *lent, struct err *e);

/* Load. Fails with what went wrong, file and byte. */
void alone_run(struct alone *a, struct err *e);

/* Accepts what could not be opened. */
void alone_close(struct alone *a);

#endif
